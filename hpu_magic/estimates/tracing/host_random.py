"""Control the host's random number generators during a trace."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def same_each_time() -> Iterator[None]:
    """Make Python's and NumPy's generators return the same numbers in each trace.

    The states of these generators and of PyTorch's generators are restored afterwards.
    """
    python, host = random.getstate(), torch.get_rng_state()
    numpy: Any = sys.modules.get("numpy.random")
    numpys = numpy.get_state() if numpy is not None else None
    hpu: Any = getattr(torch, "hpu", None)
    taken = hpu is not None and hpu.is_initialized()
    card = hpu.get_rng_state() if taken else None
    random.seed(0)
    if numpy is not None:
        numpy.seed(0)
    try:
        yield
    finally:
        random.setstate(python)
        torch.set_rng_state(host)
        if numpy is not None:
            numpy.set_state(numpys)
        if taken:
            hpu.set_rng_state(card)
