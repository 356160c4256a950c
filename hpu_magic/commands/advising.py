"""The command that lists changes to a step that save time or memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from hpu_magic import notebook
from hpu_magic.commands.parameters import Card, Inputs, Model, Variable
from hpu_magic.commands.planning import (
    Batch,
    Checkpointing,
    DeepSpeed,
    Loss,
    Mode,
    Optimizer,
    StepDtype,
    chosen_optimizer,
    positional,
)

if TYPE_CHECKING:
    from hpu_magic.advice.report import Advice
    from hpu_magic.advice.suggestion import Suggestion

Observed = Annotated[Any, Variable("measurement")]


def advise(
    model: Model,
    inputs: Inputs,
    *,
    observed: Observed = None,
    apply: int | None = None,
    train: bool = True,
    card: Card = "gaudi2",
    cards: int | None = None,
    parallel: str | None = None,
    mode: Mode | None = None,
    dtype: StepDtype | None = None,
    optimizer: Optimizer = None,
    checkpointing: Checkpointing | None = None,
    accumulate: int | None = None,
    batch: Batch | None = None,
    loss: Loss = None,
    deepspeed: DeepSpeed = None,
) -> Advice:
    """List changes that make a step faster or make it fit on a card, sorted by gain.

    Gains are either estimated, with a band, or measured by a fit or the ledger. The arguments
    describe the current step.

    Parameters
    ----------
    model : torch.nn.Module
        A module on any device; it does not change.
    inputs : torch.Tensor, sequence of torch.Tensor, or dict
        Arguments of the model, on any device, with the batch size of one card. A dict is passed as
        keyword arguments.
    observed : FitResult or LedgerReport, optional
        The result of a fit or of %hpu_ledger last. Its measurements lead to more suggestions, and
        its settings are the defaults of the other arguments.
    apply : int, optional
        Apply the change with this number, if a command can do so.
    train : bool
        Analyze a training step; ``train=False`` analyzes a forward pass.
    card : {"gaudi", "gaudi2", "gaudi3"}
        The generation of the card.
    cards : int, optional
        Number of cards; the default is that of the fit, or 1.
    parallel : str, optional
        How the cards share the work, as in estimate.
    mode : {"eager", "lazy", "graphs", "compile"}, optional
        The execution mode; the default is that of the fit or of this process.
    dtype : {"fp32", "bf16", "bf16-mixed", "fp8"}, optional
        The precision; the default is that of the fit, of autocast or of the parameters.
    optimizer : torch.optim.Optimizer or str, optional
        An optimizer, a name such as adamw, or none; the default is that of the fit, or adamw.
    checkpointing : {"none", "full", "selective"}, optional
        Layers that the backward pass recomputes; the default is none.
    accumulate : int, optional
        Number of batches per optimizer step; the default is that of the fit, or 1.
    batch : int or "largest", optional
        Batch size per card; the default is that of the inputs.
    loss : callable, optional
        Computes the loss from the output; the default is the output's ``loss``, or its sum.
    deepspeed : dict or path, optional
        DeepSpeed's configuration, as in estimate; the default is that of the fit.

    Returns
    -------
    Advice
        A list of `Suggestion` with ``title``, ``why``, ``change`` and ``gain``.

    Raises
    ------
    HPUError
        An argument is invalid, the step cannot be estimated, or the change cannot be applied.
    """
    from hpu_magic.advice.advise import advise as advised

    arguments: dict[str, Any] = {"cards": cards, "parallel": parallel, "mode": mode, "dtype": dtype}
    arguments |= {"checkpointing": checkpointing, "accumulate": accumulate}
    arguments |= {"batch": batch, "loss": loss, "deepspeed": deepspeed}
    chosen = {name: value for name, value in arguments.items() if value is not None}
    if optimizer is not None:
        chosen["optimizer"] = chosen_optimizer(optimizer)
    advice = advised(
        model,
        *positional(inputs),
        observed=observed,
        name=notebook.name_of(model) or "model",
        train=train,
        card=card,
        **chosen,
    )
    if apply is not None:
        _apply(advice.numbered(apply))
    return advice


def _apply(suggestion: Suggestion) -> None:
    from hpu_magic.errors import HPUError

    if not suggestion.command:
        raise HPUError(
            f"{suggestion.title!r} cannot be applied automatically, because {suggestion.by_hand}; "
            f"use this code:\n{suggestion.change}"
        )
    notebook.run(suggestion.command)
    print(f"Applied with {suggestion.command}: {suggestion.title}")
