"""Helpers of the bridge."""

from . import debug, event_dispatcher, experimental, internal, library_loader

__all__ = ["debug", "event_dispatcher", "experimental", "internal", "library_loader"]
