"""The error of estimates."""

from __future__ import annotations

from hpu_magic.errors import HPUError


class EstimateError(HPUError):
    """An estimate is not possible with these arguments; the message contains the fix."""
