"""Helpers of the bridge."""

from . import experimental, internal, library_loader

__all__ = ["experimental", "internal", "library_loader"]
