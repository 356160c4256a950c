"""How far an estimate of generation may be from a measurement, by its kind of work."""

from __future__ import annotations

from dataclasses import dataclass

from hpu_magic.estimate.generation.settings import Settings


@dataclass(frozen=True)
class Band:
    """Factors on the estimated seconds between which a measurement is expected."""

    low: float
    high: float
    source: str
    """What they were told from, as a sentence's part."""


def band_of(batch: int, settings: Settings) -> Band:
    """Return the band of a kind of work.

    Factors are the 10th and the 90th percentile of published seconds over estimated ones, each
    family of models left out of what its estimate was fitted to.
    """
    if batch == 1 and settings.prompt < 64 * settings.new_tokens:
        low, high, rows = 0.9, 1.1, "batch-1 decoding"
    else:
        low, high, rows = 0.75, 1.35, "batched generation"
    if settings.layout.cards > settings.card.cards_a_machine:
        return Band(low / 1.5, high * 1.5, f"the band of {rows}, wider for several machines.")
    return Band(low, high, f"the band is that of published rows of {rows}.")
