"""Optimizers whose steps are one operator for all weights of a group."""

import torch

from ..._optimizers import marking_steps
from .FusedAdagrad import FusedAdagrad
from .FusedAdamW import FusedAdamW
from .FusedLamb import FusedLamb
from .FusedLars import FusedLars
from .FusedResourceApplyMomentum import FusedResourceApplyMomentum
from .FusedSGD import FusedSGD

Adam = marking_steps(torch.optim.Adam)
AdamW = marking_steps(torch.optim.AdamW)

__all__ = [
    "Adam",
    "AdamW",
    "FusedAdagrad",
    "FusedAdamW",
    "FusedLamb",
    "FusedLars",
    "FusedResourceApplyMomentum",
    "FusedSGD",
]
