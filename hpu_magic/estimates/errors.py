"""The error that estimates raise."""

from __future__ import annotations

from hpu_magic.errors import HPUError


class EstimateError(HPUError):
    """Raised if these arguments do not allow an estimate; the message says how to fix them."""
