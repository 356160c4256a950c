"""The execution mode of this process."""

import functools
import os

VARIABLE = "PT_HPU_LAZY_MODE"


@functools.cache
def is_lazy() -> bool:
    """Tell whether lazy mode was loaded; read from ``PT_HPU_LAZY_MODE`` once, at load."""
    return os.environ.get(VARIABLE, "0") != "0"


def tell() -> None:
    """Name the loaded mode in the environment, unless the user has.

    Libraries read the variable there, each with a default of its own, and so do child processes,
    which shall be in the mode of their parent.
    """
    os.environ.setdefault(VARIABLE, str(int(is_lazy())))
