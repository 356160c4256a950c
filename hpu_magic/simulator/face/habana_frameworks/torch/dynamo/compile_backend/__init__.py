"""The backend ``hpu_backend`` of `torch.compile` and its settings."""

from . import config

__all__ = ["config"]
