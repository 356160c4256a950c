"""The execution mode of this process."""

import functools
import os


@functools.cache
def is_lazy() -> bool:
    """Tell whether lazy mode was loaded; read from ``PT_HPU_LAZY_MODE`` once, at load."""
    return os.environ.get("PT_HPU_LAZY_MODE", "0") != "0"
