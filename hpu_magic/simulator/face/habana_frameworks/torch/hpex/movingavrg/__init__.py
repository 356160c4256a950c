"""Moving averages of a model's values."""

from .FusedEMA import FusedEMA

__all__ = ["FusedEMA"]
