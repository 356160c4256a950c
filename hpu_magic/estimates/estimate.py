"""`hpu_magic.estimate`: the time and memory of a step on a card."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hpu_magic.estimates.result import Estimate
    from hpu_magic.estimates.traced_step import TracedStep


def estimate(
    model: nn.Module,
    *inputs: Any,
    train: bool = True,
    card: str = "gaudi2",
    cards: int = 1,
    parallel: str | None = None,
    mode: str | None = None,
    dtype: str | None = None,
    optimizer: torch.optim.Optimizer | str | None = "adamw",
    checkpointing: str = "none",
    accumulate: int = 1,
    batch: int | Literal["largest"] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    attention: str = "torch",
    expert_parallel: int = 1,
    imbalance: float = 1.0,
    deepspeed: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    **named_inputs: Any,
) -> Estimate:
    """Estimate a step; see `hpu_magic.estimate`.

    ``inputs`` and ``named_inputs`` are the model's arguments. A single dict whose keys are argument
    names of the model is passed as keyword arguments.
    """
    step = step_of(
        model,
        inputs,
        named_inputs,
        train=train,
        optimizer=optimizer,
        checkpointing=checkpointing,
        loss=loss,
    )
    return step.estimate(
        card=card,
        cards=cards,
        parallel=parallel,
        mode=mode,
        dtype=dtype,
        accumulate=accumulate,
        batch=batch,
        attention=attention,
        expert_parallel=expert_parallel,
        imbalance=imbalance,
        deepspeed=deepspeed,
    )


def trace(
    model: nn.Module,
    *inputs: Any,
    train: bool = True,
    optimizer: torch.optim.Optimizer | str | None = "adamw",
    checkpointing: str = "none",
    loss: Callable[[Any], torch.Tensor] | None = None,
) -> TracedStep:
    """Trace a step in the precision of the model; see `hpu_magic.trace`."""
    traced = step_of(
        model,
        inputs,
        {},
        train=train,
        optimizer=optimizer,
        checkpointing=checkpointing,
        loss=loss,
    )
    traced.estimate()
    return traced


def step_of(
    model: nn.Module,
    inputs: tuple[Any, ...],
    named_inputs: Mapping[str, Any],
    *,
    train: bool = True,
    optimizer: torch.optim.Optimizer | str | None = "adamw",
    checkpointing: str = "none",
    loss: Callable[[Any], torch.Tensor] | None = None,
) -> TracedStep:
    """Return a step that is traced as soon as it is estimated."""
    # The step can be traced even if PyTorch was initialized without a card.
    with suppress(HPUError):
        device.torch_with_hpu()
    from hpu_magic.estimates.calls import call_of, check_names, uncompiled
    from hpu_magic.estimates.options import check_model, mode_here
    from hpu_magic.estimates.traced_step import TracedStep

    here = mode_here(model)
    model = uncompiled(model)
    check_model(model)
    arguments = [name for name in inspect.signature(estimate).parameters if name != "inputs"]
    check_names(model, named_inputs, arguments[:-1])
    return TracedStep(
        model,
        call_of(model, inputs, named_inputs, train=train),
        train=train,
        mode=here,
        optimizer=optimizer,
        checkpointing=checkpointing,
        loss=loss,
    )
