"""Make ``python -m hpu_magic`` run the command ``hpu-magic``."""

import sys

from hpu_magic.command_line import main

if __name__ == "__main__":
    sys.exit(main())
