"""The error that estimates raise."""

from __future__ import annotations

from hpu_magic.errors import HPUError


class EstimateError(HPUError):
    """Raised if no estimate is possible with these arguments; the message contains the fix."""
