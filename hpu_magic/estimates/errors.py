"""The error raised by estimates."""

from __future__ import annotations

from hpu_magic.errors import HPUError


class EstimateError(HPUError):
    """Raised if the arguments do not allow an estimate; the message explains how to fix them."""
