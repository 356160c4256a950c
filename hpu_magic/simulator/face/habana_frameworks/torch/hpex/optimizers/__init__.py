"""Optimizers that update all weights in a group with a single operator."""

from habana_frameworks.torch._optimizers import marking_steps
from habana_frameworks.torch.hpex.optimizers.FusedAdagrad import FusedAdagrad
from habana_frameworks.torch.hpex.optimizers.FusedAdamW import FusedAdamW
from habana_frameworks.torch.hpex.optimizers.FusedLamb import FusedLamb
from habana_frameworks.torch.hpex.optimizers.FusedLars import FusedLars
from habana_frameworks.torch.hpex.optimizers.FusedResourceApplyMomentum import (
    FusedResourceApplyMomentum,
)
from habana_frameworks.torch.hpex.optimizers.FusedSGD import FusedSGD

import torch

Adam = marking_steps(torch.optim.Adam)
AdamW = marking_steps(torch.optim.AdamW)
