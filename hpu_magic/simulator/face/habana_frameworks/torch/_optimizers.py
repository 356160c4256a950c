"""PyTorch's Adam and AdamW with a step mark after each optimizer step."""

from __future__ import annotations

import sys
from typing import Any

from habana_frameworks.torch.core.step_closure import mark_step
from habana_frameworks.torch.utils.internal import is_lazy

import torch


def overwrite_torch_optimizers() -> None:
    """Replace ``torch.optim.Adam`` and ``AdamW`` with subclasses that call `mark_step`.

    The bridge calls this on load if ``PT_HPU_REPLACE_ADAM_ADAMW`` is on.
    """
    for name in ("Adam", "AdamW"):
        optimizer = getattr(torch.optim, name)
        marking = marking_steps(optimizer)
        setattr(torch.optim, name, marking)
        setattr(sys.modules[optimizer.__module__], name, marking)


def marking_steps(optimizer: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Return a subclass that calls `mark_step` after each step; does not wrap a class twice."""
    if hasattr(optimizer, "_marks_steps"):
        return optimizer

    class Marking(optimizer):  # type: ignore[valid-type, misc]
        _marks_steps = True

        def step(self, closure: Any = None) -> Any:
            result = super().step(closure)
            if is_lazy():  # in eager mode, mark_step only warns
                mark_step()
            return result

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(Marking, name, getattr(optimizer, name))
    return Marking
