"""The memory of weights, gradients and optimizer, for steps that cannot be traced."""

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
    """Return a sentence on the memory of weights and, for training, of gradients and optimizer.

    The model is not changed. ``dtype`` is the type of its floating-point parameters, or None to
    keep them, and ``optimizer`` a result of `optimizers.maker`.
    """
    with fake_card(), twins.fake_tensors(model, dtype, training=train) as tensors:
        weights = list(tensors.parameters.values())
        trained = [weight for weight in weights if train and weight.requires_grad]
        parts = [f"weights {units.size(_bytes_of(weights))}"]
        if trained:
            parts.append(f"gradients {units.size(_bytes_of(trained))}")
        if trained and optimizer is not None:
            program = Program()
            with Recorder(program, RunningModules(model)) as recorder:
                optimizers.record_step(optimizer, recorder, trained)
            parts.append(f"optimizer {units.size(program.of_role(Role.OPTIMIZER))}")
    return f"Without activations, the model needs: {', '.join(parts)}."


def _bytes_of(tensors: list[nn.Parameter]) -> int:
    return sum(card_bytes(tensor.dtype, tensor.numel()) for tensor in tensors)
