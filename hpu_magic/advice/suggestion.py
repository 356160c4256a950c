"""A suggested change that speeds up a step or makes it fit, together with its gain."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpu_magic import units

Band = tuple[float, float]


@dataclass(frozen=True)
class Gain:
    """The speedup of a change."""

    factor: float  # samples per second after the change, divided by those before it
    source: str  # "estimate", or "measured" if based on the time that a fit lost
    band: Band | None = None  # for an estimate, the range in which a measurement is expected

    def __str__(self) -> str:
        if self.band is None:
            return f"up to {times(self.factor)} ({self.source})"
        low, high = self.band
        return f"{times(self.factor)} ({self.source}; {times(low)} to {times(high)})"


@dataclass(frozen=True)
class Suggestion:
    """A suggested change."""

    title: str  #: the change, in words
    why: str  #: the reason, with numbers
    change: str  #: the change, as code
    gain: Gain | None = None  #: None if it was neither measured nor estimated
    saves: int = 0  #: estimated bytes freed on one card; negative if more are needed
    needed: bool = False
    """Whether the step does not fit on a card without this or another needed change."""
    command: str = ""  #: a notebook command that applies the change, or ""
    by_hand: str = ""  #: why no command can apply the change

    @property
    def gain_text(self) -> str:
        """The gain, in words."""
        if self.needed:
            speed = f"; speed {self.gain}" if self.gain is not None else ""
            return f"fits, {units.size(self.saves)} less (estimate){speed}"
        return str(self.gain) if self.gain is not None else "not known"


def times(factor: float) -> str:
    """Format a factor with three significant digits, for example ``1.62x`` or ``130x``."""
    return f"{factor:.{max(0, 2 - max(0, math.floor(math.log10(factor))))}f}x"


def estimated(before: float, after: float, bands: tuple[Band, Band]) -> Gain:
    """Return the gain between two estimated rates, both in samples per second.

    The relative errors of the two estimates are assumed to be independent.
    """
    (low, high), (other_low, other_high) = bands
    factor = after / before
    slower = math.hypot(math.log(low), math.log(other_high))
    faster = math.hypot(math.log(high), math.log(other_low))
    return Gain(factor, "estimate", (factor * math.exp(-slower), factor * math.exp(faster)))


def measured(share: float) -> Gain:
    """Return the gain of avoiding a loss, which is a share of a fit's time from 0 to 1."""
    return Gain(1 / (1 - min(share, 0.99)), "measured")
