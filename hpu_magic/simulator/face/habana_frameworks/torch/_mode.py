"""The execution mode of this process."""

import functools
import os

VARIABLE = "PT_HPU_LAZY_MODE"


@functools.cache
def is_lazy() -> bool:
    """Return whether the process is in lazy mode; reads ``PT_HPU_LAZY_MODE`` once, at load."""
    return os.environ.get(VARIABLE, "0") != "0"


def export_mode() -> None:
    """Set the environment variable of the mode, unless the user has set it.

    Libraries read the variable with different defaults, and child processes must use the mode of
    their parent.
    """
    os.environ.setdefault(VARIABLE, str(int(is_lazy())))
