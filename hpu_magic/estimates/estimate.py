"""`hpu_magic.estimate`: whether a step fits a card, and how long it takes there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hpu_magic.estimates.result import Estimate


def estimate(
    model: nn.Module,
    *inputs: Any,
    train: bool = True,
    generation: str = "gaudi2",
    cards: int = 1,
    parallel: str | None = None,
    mode: str | None = None,
    precision: str | None = None,
    optimizer: torch.optim.Optimizer | str | None = "adamw",
    checkpointing: str = "none",
    accumulate: int = 1,
    batch: int | Literal["largest"] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    **named_inputs: Any,
) -> Estimate:
    """Estimate a step's time and memory on a Gaudi card, without one and without computing.

    The operations of the step are traced with tensors that have no memory, each is priced by a
    table of constants, and their lifetimes give the memory. The model is left as it was.

    Parameters
    ----------
    model : torch.nn.Module
        On ``meta``, ``cpu`` or ``hpu``. What requires gradients is trained.
    *inputs : tensor or dict
        What the model is called with, of which shapes and types count: the batch of one card. One
        dict whose keys are the model's arguments gives these.
    train : bool
        Forward, backward and the optimizer's step; else forward alone.
    generation : {"gaudi", "gaudi2", "gaudi3"}
        The card.
    cards : int
        How many work together.
    parallel : str, optional
        How they share the work: ``"ddp"`` (if several and nothing is said), ``"zero1"``,
        ``"zero2"``, ``"zero3"``, ``"fsdp"``, ``"tp=N"``, ``"pp=N"``, and products such as
        ``"tp=2,pp=2,zero1"``. ZeRO is DeepSpeed's, whose optimizer steps weights of its own in
        float32; that of FSDP steps the model's in their type.
    mode : {"lazy", "eager", "graphs", "compile"}, optional
        How operations reach the card; as in this process if left out, or as the model is compiled.
    precision : {"fp32", "bf16", "bf16-mixed", "fp8"}, optional
        What it computes in; the type of the model's parameters if left out.
    optimizer : torch.optim.Optimizer, str or None
        An instance, a name such as ``"adamw"`` or ``"fusedadamw"``, or None.
    checkpointing : {"none", "full", "selective"}
        What of the layers is computed again in the backward pass: nothing; all; all but matrix
        products with weights.
    accumulate : int
        Batches in a step of the optimizer.
    batch : int or "largest", optional
        Size of the inputs' first dimension; as given if left out; the largest that fits.
    loss : callable, optional
        What of the output is minimized; the output's ``loss``, or else its sum, if left out.
    **named_inputs
        What the model is called with by name, such as ``input_ids=ids``; those that are named as an
        argument above go into a dict.

    Returns
    -------
    Estimate
        ``seconds`` of a step, ``samples_per_second`` and ``tokens_per_second`` over all cards,
        ``peak_memory`` in bytes of one card, ``largest_batch``, ``band`` (the low and the high
        factor between which a measurement is expected), and what they are made of.

    Raises
    ------
    EstimateError
        An argument is none that there is, the model cannot take its inputs, or what runs depends
        on numbers.
    """
    with suppress(HPUError):  # PyTorch may have settled without a card; it is traced all the same
        device.torch_with_hpu()
    from hpu_magic.estimates.calls import call_of, refuse_unknown, uncompiled
    from hpu_magic.estimates.cost.hardware import generation_named
    from hpu_magic.estimates.layout import parse
    from hpu_magic.estimates.options import checked, mode_here
    from hpu_magic.estimates.step_estimate import StepEstimator

    mode = mode or mode_here(model)
    model = uncompiled(model)
    card, layout = generation_named(generation), parse(cards, parallel)
    options = checked(
        model,
        train=train,
        mode=mode,
        precision=precision,
        optimizer=optimizer,
        checkpointing=checkpointing,
        accumulate=accumulate,
        batch=batch,
        loss=loss,
    )
    arguments = [name for name in inspect.signature(estimate).parameters if name != "inputs"]
    refuse_unknown(model, named_inputs, arguments[:-1])
    call = call_of(model, inputs, named_inputs, train=train)
    estimator = StepEstimator(model, call, options, card, layout)
    return estimator.largest() if batch == "largest" else estimator.as_given()
