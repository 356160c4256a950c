"""Random numbers that a model draws on the host, by Python's and NumPy's generators."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def same_each_time() -> Iterator[None]:
    """Have these generators give the same numbers at each trace, and leave them as they were."""
    python = random.getstate()
    numpy: Any = sys.modules.get("numpy.random")
    numpys = numpy.get_state() if numpy is not None else None
    random.seed(0)
    if numpy is not None:
        numpy.seed(0)
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(numpys)
