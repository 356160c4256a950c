"""PyTorch's Adam and AdamW with a step mark after each step."""

from __future__ import annotations

import sys
from typing import Any

from habana_frameworks.torch import _flags
from habana_frameworks.torch.core.step_closure import mark_step
from habana_frameworks.torch.utils.internal import is_lazy

import torch


def overwrite_torch_optimizers() -> None:
    """Replace ``torch.optim.Adam`` and ``AdamW`` by optimizers that mark a step after each step.

    The bridge calls this when it loads if ``PT_HPU_REPLACE_ADAM_ADAMW`` is on.
    """
    for name in ("Adam", "AdamW"):
        optimizer = getattr(torch.optim, name)
        marking = marking_steps(optimizer)
        setattr(torch.optim, name, marking)
        setattr(sys.modules[optimizer.__module__], name, marking)


def overwrite_if_flag_is_set() -> None:
    """Call `overwrite_torch_optimizers` if its flag is set."""
    if _flags.is_on("PT_HPU_REPLACE_ADAM_ADAMW"):
        overwrite_torch_optimizers()


def marking_steps(optimizer: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Return a subclass that marks a step after each of its steps, or the class if it does so."""
    if hasattr(optimizer, "_marks_steps"):
        return optimizer

    class Marking(optimizer):  # type: ignore[valid-type, misc]
        _marks_steps = True

        def step(self, closure: Any = None) -> Any:
            result = super().step(closure)
            if is_lazy():  # in eager mode, a mark would only warn
                mark_step()
            return result

    Marking.__name__ = optimizer.__name__
    Marking.__qualname__ = optimizer.__qualname__
    Marking.__module__ = optimizer.__module__
    Marking.__doc__ = optimizer.__doc__
    return Marking
