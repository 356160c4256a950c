"""Make ``python -m hpu_magic`` run the ``hpu-magic`` command."""

import sys

from hpu_magic.command_line import main

if __name__ == "__main__":
    sys.exit(main())
