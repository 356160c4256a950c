"""Optimizers whose steps receive the gradients, like PyTorch's distributed optimizers."""

from habana_frameworks.torch.hpex.optimizers.distributed.FusedAdamW import FusedAdamW
