"""What an estimate says when it cannot be made."""

from __future__ import annotations

from hpu_magic.errors import HPUError


class EstimateError(HPUError):
    """No estimate for these arguments; the text says which, and what to do."""
