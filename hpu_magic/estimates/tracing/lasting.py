"""What a model takes on a card whatever it runs: said where a step cannot be traced."""

from __future__ import annotations

import torch
from torch import nn

from hpu_magic import units
from hpu_magic.estimates.tracing import optimizers, twins
from hpu_magic.estimates.tracing.fake_card import fake_card
from hpu_magic.estimates.tracing.modules import RunningModules
from hpu_magic.estimates.tracing.program import Program, Role
from hpu_magic.estimates.tracing.recorder import Recorder, card_bytes


def sentence(
    model: nn.Module, dtype: torch.dtype | None, *, train: bool, optimizer: optimizers.Make | None
) -> str:
    """Tell the bytes of weights, and where it trains of gradients and of what the optimizer keeps.

    Parameters
    ----------
    model : nn.Module
        On any device; it is left as it was.
    dtype : torch.dtype or None
        Type of its floating point parameters; their own if None.
    train : bool
        Whether what requires gradients has them.
    optimizer : callable or None
        What makes the optimizer, as `optimizers.maker` gives it.
    """
    with fake_card(), twins.fake_tensors(model, dtype, training=train) as tensors:
        weights = list(tensors.parameters.values())
        trained = [one for one in weights if train and one.requires_grad]
        parts = [f"weights {units.size(_bytes_of(weights))}"]
        if trained:
            parts.append(f"gradients {units.size(_bytes_of(trained))}")
        if trained and optimizer is not None:
            program = Program()
            with Recorder(program, RunningModules(model)) as recorder:
                optimizers.record_step(optimizer, recorder, trained)
            parts.append(f"optimizer {units.size(program.of_role(Role.OPTIMIZER))}")
    return f"Whatever it runs, it takes: {', '.join(parts)}."


def _bytes_of(tensors: list[nn.Parameter]) -> int:
    return sum(card_bytes(one.dtype, one.numel()) for one in tensors)
