"""Step marks and the bridge's changes to PyTorch's random number functions."""

from . import _random
from .step_closure import add_step_closure, iter_mark_step, mark_step

_random.install()

__all__ = ["add_step_closure", "iter_mark_step", "mark_step"]
