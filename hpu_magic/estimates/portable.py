"""Search for the largest batch, and pickle estimates without their models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpu_magic.estimates.errors import EstimateError


class Portable:
    """Base class of estimates; pickling omits `find_largest`, which references the model.

    Estimates are immutable, so copying one within the same process returns the estimate itself.
    """

    find_largest: Callable[[], int]
    largest: int | None

    def searched(self) -> int:
        """Return the largest batch that fits; only the first call searches for it."""
        if self.largest is None:
            object.__setattr__(self, "largest", self.find_largest())
        assert self.largest is not None
        return self.largest

    def to_dict(self) -> dict[str, Any]:
        """Return the values, in seconds and bytes, as plain data."""
        found: Any = self
        names = ["seconds", "samples_per_second", "tokens_per_second", "batch", "peak", "fits"]
        names += ["band", "memory"]
        of_kind = ("first_token_seconds", "token_seconds")
        names += [name for name in of_kind if hasattr(found, name)]
        card = found.settings.card if hasattr(found, "settings") else found.card
        return {
            "estimate": found.title().removeprefix("Estimate: "),
            "model": found.model,
            **{name: getattr(found, name) for name in names},
            "memory_of_a_card": card.memory,
            "time": found.by_kind,
        }

    def __copy__(self) -> Portable:
        return self

    def __deepcopy__(self, _: Any) -> Portable:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "find_largest": _elsewhere}


def _elsewhere() -> int:
    raise EstimateError(
        "This copy of the estimate cannot find the largest batch without the model: read "
        'largest_batch before copying the estimate, or use batch="largest".'
    )
