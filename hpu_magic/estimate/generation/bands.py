"""How far an estimate of generation may be from a measurement, by its kind of work."""

from __future__ import annotations

from dataclasses import dataclass

from hpu_magic.estimate.cost.hardware import Generation


@dataclass(frozen=True)
class Band:
    """Factors on the estimated seconds between which a measurement is expected."""

    low: float
    high: float
    rows: str
    """The kind of published measurements that they come from."""


# Published seconds over estimated ones: 20 of 21 measurements of decoding with a batch of 1 on one
# card lie within, 35 of 37 of batches, and both of a batch of 1 over several cards.
_SINGLE = Band(0.7, 1.4, "single sequences on one card")
_BATCHED = Band(0.68, 1.4, "batches")
_SPREAD = Band(0.7, 1.7, "single sequences over several cards")
# Between machines nothing is published.
_MACHINES = 1.5


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
    band = _BATCHED if batch > 1 else _SINGLE if cards == 1 else _SPREAD
    if cards > card.cards_a_machine:
        rows = f"{band.rows}, widened for several machines"
        return Band(band.low / _MACHINES, band.high * _MACHINES, rows)
    return band
