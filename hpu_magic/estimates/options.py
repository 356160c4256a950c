"""What a step is estimated for: checked before anything is traced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from hpu_magic.errors import choice, suggestion
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.step_arguments import MODES, PRECISIONS
from hpu_magic.estimates.tracing import optimizers, recomputation
from hpu_magic.estimates.tracing.step import StepOptions
from hpu_magic.runtime.execution.mode import loaded_mode

_TYPES: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "fp32": (torch.float32, None),
    "bf16": (torch.bfloat16, None),
    "bf16-mixed": (torch.float32, torch.bfloat16),
    "fp8": (torch.bfloat16, None),
}
"""For each precision, the type of the weights, and that which autocast computes in."""
_MOST = 10**9
"""Above this, bytes of a step could not be counted in 64 bits."""


@dataclass(frozen=True)
class Options:
    """The checked arguments of an estimate, but for the layout."""

    train: bool
    mode: str
    precision: str
    step: StepOptions
    accumulate: int
    optimizer: str
    """Its name, for who reads the estimate."""

    def __getstate__(self) -> dict[str, Any]:
        # What makes the optimizer, and the user's loss, stay where the model is.
        return {**vars(self), "step": replace(self.step, optimizer=None, loss=None)}

    def with_batch(self, batch: int | None) -> StepOptions:
        """Return how the step is traced with a batch of another size."""
        return replace(self.step, batch=batch)


def mode_here(model: Any) -> str:
    """Return the mode in which this process would run a model; lazy if PyTorch has no card."""
    loaded = loaded_mode() or "lazy"
    compiled = isinstance(model, nn.Module) and (
        isinstance(model, torch._dynamo.OptimizedModule) or model._compiled_call_impl
    )
    return "compile" if loaded == "eager" and compiled else loaded


def checked(
    model: nn.Module,
    *,
    train: bool,
    mode: str,
    dtype: str | None,
    optimizer: torch.optim.Optimizer | str | None,
    checkpointing: str,
    accumulate: int,
    batch: int | Literal["largest"] | None,
    loss: Callable[[Any], torch.Tensor] | None,
) -> Options:
    """Return the arguments of an estimate, checked.

    Raises
    ------
    EstimateError
        One of them is none that there is; the text names it and what there is.
    """
    if not isinstance(model, nn.Module):
        raise EstimateError(
            f"{type(model).__name__} is no torch.nn.Module, and only of those is there an estimate."
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise EstimateError(
            "The model is compiled by torch.jit, whose operations cannot be traced: give the "
            "module that it was made of."
        )
    if any(map(nn.parameter.is_lazy, model.parameters())):
        raise EstimateError(
            "The model has lazy layers without a shape: call it once, so that they get theirs."
        )
    if loss is not None and not callable(loss):
        raise EstimateError(
            f"loss is a {type(loss).__name__}: give a function of the model's output."
        )
    chosen = _precision_of(model) if dtype is None else one_of("dtype", dtype, PRECISIONS)
    mode = one_of("mode", mode, MODES)
    checkpointing = one_of("checkpointing", checkpointing, recomputation.KINDS)
    positive("accumulate", accumulate)
    if batch is not None and batch != "largest":
        positive("batch", batch)
    weights, autocast = _TYPES[chosen]
    make = optimizers.maker(optimizer) if train else None
    step = StepOptions(
        train=train,
        dtype=weights,
        autocast=autocast,
        optimizer=make,
        loss=loss,
        batch=None if batch == "largest" else batch,
        checkpointing=checkpointing if train else "none",
        accumulating=train and accumulate > 1,
    )
    name = optimizer if isinstance(optimizer, str | None) else type(optimizer).__name__
    return Options(train, mode, chosen, step, accumulate, name or "no optimizer")


def one_of(argument: str, value: object, known: tuple[str, ...]) -> str:
    """Return the choice that an argument names.

    Raises
    ------
    EstimateError
        It names none of them.
    """
    chosen = choice(value, known)
    if chosen is None:
        fix = suggestion(str(value), known) or f"write {', '.join(map(repr, known))}."
        raise EstimateError(f"{argument}={value!r} is not a choice: {fix}")
    return chosen


def positive(argument: str, value: object) -> None:
    """Refuse what is not a whole number from 1 to `_MOST`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise EstimateError(f"{argument}={value!r} must be a whole number from 1 to {_MOST}.")


def _precision_of(model: nn.Module) -> str:
    kinds = {one.dtype for one in model.parameters() if one.is_floating_point()}
    # Of float64 a card keeps float32.
    wide = not kinds or kinds & {torch.float32, torch.float64}
    return "fp32" if wide else "bf16"
