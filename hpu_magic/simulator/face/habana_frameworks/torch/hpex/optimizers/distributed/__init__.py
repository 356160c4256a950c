"""Optimizers that are given their gradients, as PyTorch's distributed ones are."""

from .FusedAdamW import FusedAdamW

__all__ = ["FusedAdamW"]
