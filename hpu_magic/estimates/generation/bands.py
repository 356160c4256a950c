"""How far an estimate of generation may be from a measurement, by its kind of work."""

from __future__ import annotations

from dataclasses import dataclass

from hpu_magic.estimates.cost.constants import BANDS
from hpu_magic.estimates.cost.hardware import Generation


@dataclass(frozen=True)
class Band:
    """Factors on the estimated seconds between which a measurement is expected."""

    low: float
    high: float
    rows: str
    """The kind of published measurements that they come from."""


def band_of(batch: int, cards: int, card: Generation) -> Band:
    """Return the band of a kind of work.

    Parameters
    ----------
    batch : int
        Sequences of one card.
    cards : int
        Cards that work together.
    card : Generation
        Of these.
    """
    if cards > card.cards_a_machine:
        factor, rows = BANDS["unmeasured"], "batches, widened for several machines"
    elif batch > 1:
        factor, rows = BANDS["batches"], "batches"
    elif cards == 1:
        factor, rows = BANDS["single sequences"], "single sequences on one card"
    else:
        factor, rows = BANDS["unmeasured"], "single sequences, widened for several cards"
    return Band(1 / factor, factor, rows)
