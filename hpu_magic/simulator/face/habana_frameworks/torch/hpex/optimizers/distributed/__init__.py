"""Optimizers that are given their gradients, as PyTorch's distributed ones are."""

from habana_frameworks.torch.hpex.optimizers.distributed.FusedAdamW import FusedAdamW

__all__ = ["FusedAdamW"]
