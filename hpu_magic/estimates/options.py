"""Check the arguments of an estimate before a step is traced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from hpu_magic.errors import choice, suggestion
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.step_arguments import ATTENTIONS, DTYPES, MODES
from hpu_magic.estimates.tracing import optimizers, recomputation
from hpu_magic.estimates.tracing.step import StepOptions
from hpu_magic.runtime.execution.mode import loaded_mode

_TYPES: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "fp32": (torch.float32, None),
    "bf16": (torch.bfloat16, None),
    "bf16-mixed": (torch.float32, torch.bfloat16),
    "fp8": (torch.bfloat16, None),
}
"""Maps each ``dtype`` argument to the dtype of the weights and the autocast dtype."""
_MOST = 10**9
"""Limit of integer arguments; with larger ones, the memory in bytes may overflow 64 bits."""


@dataclass(frozen=True)
class Options:
    """The validated arguments of an estimate, except for the layout."""

    train: bool
    mode: str
    dtype: str
    step: StepOptions
    accumulate: int
    optimizer: str
    """Name of the optimizer, used in reports."""
    attention: str
    """How PyTorch's attention runs: ``torch``, or ``fused`` for the vendor's kernel."""

    def __getstate__(self) -> dict[str, Any]:
        # The optimizer and loss functions belong to the process that has the model.
        return {**vars(self), "step": replace(self.step, optimizer=None, loss=None)}

    def with_batch(self, batch: int | None) -> StepOptions:
        """Return the options for tracing the step with a different batch size."""
        return replace(self.step, batch=batch)


def mode_here(model: Any) -> str:
    """Return the mode in which this process runs the model; eager if PyTorch has no card."""
    loaded = loaded_mode() or "eager"
    compiled = isinstance(model, nn.Module) and (
        isinstance(model, torch._dynamo.OptimizedModule) or model._compiled_call_impl
    )
    return "compile" if loaded == "eager" and compiled else loaded


def check_model(model: object) -> None:
    """Raise `EstimateError` if an object is not a module that can be traced."""
    if not isinstance(model, nn.Module):
        raise EstimateError(f"The model is a {type(model).__name__}; pass a torch.nn.Module.")
    if isinstance(model, torch.jit.ScriptModule):
        raise EstimateError(
            "The model was compiled by torch.jit, whose operations cannot be traced; pass the "
            "original module."
        )
    if any(map(nn.parameter.is_lazy, model.parameters())):
        raise EstimateError(
            "The model has lazy layers without shapes; call it once to initialize them."
        )


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
    attention: str = "torch",
) -> Options:
    """Check the arguments of an estimate and return them as options."""
    if loss is not None and not callable(loss):
        raise EstimateError(
            f"loss is a {type(loss).__name__}; pass a function of the model's output."
        )
    chosen = _dtype_of(model) if dtype is None else one_of("dtype", dtype, DTYPES)
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
        compiled=mode == "compile",
    )
    name = optimizer if isinstance(optimizer, str | None) else type(optimizer).__name__
    attention = one_of("attention", attention, ATTENTIONS)
    return Options(train, mode, chosen, step, accumulate, name or "no optimizer", attention)


def one_of(argument: str, value: object, known: tuple[str, ...]) -> str:
    """Return the choice that matches an argument's value; raise `EstimateError` if none does."""
    chosen = choice(value, known)
    if chosen is None:
        fix = suggestion(str(value), known) or f"use one of {', '.join(map(repr, known))}."
        raise EstimateError(f"{argument}={value!r} is not a valid choice: {fix}")
    return chosen


def positive(argument: str, value: object) -> None:
    """Raise `EstimateError` if a value is not an integer from 1 to `_MOST`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise EstimateError(f"{argument} must be an integer from 1 to {_MOST}, but is {value!r}.")


def _dtype_of(model: nn.Module) -> str:
    types = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    # A card stores float64 as float32.
    wide = not types or types & {torch.float32, torch.float64}
    return "fp32" if wide else "bf16"
