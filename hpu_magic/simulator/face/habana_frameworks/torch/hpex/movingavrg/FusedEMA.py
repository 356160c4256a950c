"""Exponential moving average of a model, computed by a single operator."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection

from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch.utils.internal import is_lazy

import torch
from torch.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX

_UPDATES_TO_FULL_DECAY = 2000


def _bare(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model without PyTorch's data-parallel wrappers."""
    wrappers = torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel
    return model.module if isinstance(model, wrappers) else model


def _values(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the tensors in a model's state dict, without its modules' extra state."""
    return [
        value
        for name, value in model.state_dict().items()
        if not name.endswith(_EXTRA_STATE_KEY_SUFFIX)
    ]


class FusedEMA:
    """Keeps a copy of a model, `ema`, that holds moving averages of the model's values.

    `decay` is the weight of the previous average after many updates; the weight is smaller during
    the first updates. `updates` is the number of updates made so far.
    """

    def __init__(self, model: torch.nn.Module, decay: float = 0.9999, updates: int = 0) -> None:
        if not 0.0 <= decay <= 1.0:
            raise ValueError(f"Invalid decay value: {decay}")
        self.ema = copy.deepcopy(_bare(model)).eval()
        self.updates = updates
        self.decay = decay
        for parameter in self.ema.parameters():
            parameter.requires_grad_(False)

    def update(self, model: torch.nn.Module) -> None:
        """Update the averages with the model's values; integer tensors do not change."""
        self.updates += 1
        decay = self.decay * (1.0 - math.exp(-self.updates / _UPDATES_TO_FULL_DECAY))
        with torch.no_grad():
            of_model, of_ema = _values(_bare(model)), _values(self.ema)
            if not of_ema:
                return
            decay_t = torch.tensor([decay]).to(of_ema[0].device)
            move = _hpex_C.fused_ema if is_lazy() else torch.ops.hpu.optimizer_ema
            move(of_model, of_ema, decay_t)

    def update_attr(
        self,
        model: torch.nn.Module,
        include: Collection[str] = (),
        exclude: Collection[str] = ("process_group", "reducer"),
    ) -> None:
        """Copy public attributes that are in `include`, if passed, and not in `exclude`."""
        for name, value in model.__dict__.items():
            private = name.startswith("_") or name in exclude
            if not (private or (include and name not in include)):
                setattr(self.ema, name, value)
