"""The time of a single collective operation between cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpu_magic import units
from hpu_magic.estimates import figures
from hpu_magic.estimates.cost import links
from hpu_magic.estimates.cost.bands import Band, band_of_collective
from hpu_magic.estimates.cost.constants import FITTED
from hpu_magic.estimates.cost.hardware import generation_named
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.layout import MOST_CARDS
from hpu_magic.estimates.options import one_of
from hpu_magic.runtime.present.report import Report, Row

_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_MOST_BYTES = 2**50
"""An upper bound on the size; no card has this much memory."""


@dataclass(frozen=True, repr=False)
class CollectiveEstimate(Report):
    """The estimated time of a collective operation."""

    operation: str
    size: int
    """Size in bytes of the complete tensor, which an all-gather returns to each card."""
    cards: int
    card: str
    seconds: float
    limits: Band

    @property
    def bytes_per_second(self) -> float:
        """`size` divided by the time."""
        return self.size / self.seconds

    @property
    def band(self) -> tuple[float, float]:
        """Range in which a measurement is expected, in multiples of `seconds`."""
        return self.limits.low, self.limits.high

    def title(self) -> str:
        """Return the headline."""
        return (
            f"Estimate: {self.operation} of {units.size(self.size)} on {self.cards} x {self.card}"
        )

    def rows(self) -> Sequence[Row]:
        """Return the rows with the time and the rate, including their error bands."""
        rate = figures.rate(self.bytes_per_second / 1e9, "GB", self.band)
        return [("time", figures.duration(self.seconds, self.band)), ("rate", rate)]

    def notes(self) -> Sequence[str]:
        """Return a note that explains the estimate."""
        return (figures.note(f"published measurements of {self.limits.rows}"),)


def estimate_collective(
    operation: str, size: int, *, card: str = "gaudi2", cards: int = 8
) -> CollectiveEstimate:
    """Estimate a collective operation; see `hpu_magic.estimate_collective`."""
    operation = one_of("operation", operation, _OPERATIONS)
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _MOST_BYTES:
        raise EstimateError(f"size={size!r} is not a number of bytes: use 1 to {_MOST_BYTES}.")
    hardware = generation_named(card)
    if not isinstance(cards, int) or isinstance(cards, bool) or not 2 <= cards <= MOST_CARDS:
        raise EstimateError(
            f"cards={cards!r} is not a number of cards for a collective: use 2 to {MOST_CARDS}."
        )
    return CollectiveEstimate(
        operation,
        size,
        cards,
        hardware.name,
        links.SECONDS[operation](size, cards, hardware, FITTED, 1),
        band_of_collective(operation, size, cards, hardware),
    )
