"""What an estimate says when it cannot be made."""

from __future__ import annotations


class EstimateError(ValueError):
    """No estimate for these arguments; the text says which, and what to do."""
