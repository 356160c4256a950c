"""The bands of generation estimates, by kind of work."""

from __future__ import annotations

from dataclasses import dataclass

from hpu_magic.estimates.cost.constants import BANDS
from hpu_magic.estimates.cost.hardware import Generation


@dataclass(frozen=True)
class Band:
    """The range in which a measurement is expected, as factors of the estimated seconds."""

    low: float
    high: float
    rows: str
    """The kind of published measurements that determine the band."""


def band_of(batch: int, cards: int, card: Generation) -> Band:
    """Return the band of a generation with ``batch`` sequences per card."""
    if cards > card.cards_per_machine:
        factor, rows = BANDS["unmeasured"], "batches, widened for several machines"
    elif batch > 1:
        factor, rows = BANDS["batches"], "batches"
    elif cards == 1:
        factor, rows = BANDS["single sequences"], "single sequences on one card"
    else:
        factor, rows = BANDS["unmeasured"], "single sequences, widened for several cards"
    return Band(1 / factor, factor, rows)
