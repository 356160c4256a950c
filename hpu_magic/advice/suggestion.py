"""One change that would make a step faster, or fit, and what is known of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpu_magic import units

Band = tuple[float, float]


@dataclass(frozen=True)
class Gain:
    """How much faster a change would be.

    Attributes
    ----------
    factor : float
        How many times as many samples a second.
    source : {"estimate", "measured"}
        A measured one is what a fit would gain if all of the time that was lost came back.
    band : tuple of float or None
        Between which factors a measurement is expected, of an estimate.
    """

    factor: float
    source: str
    band: Band | None = None

    def __str__(self) -> str:
        if self.band is None:
            return f"up to {times(self.factor)} ({self.source})"
        low, high = self.band
        return f"{times(self.factor)} ({self.source}; {times(low)} to {times(high)})"


@dataclass(frozen=True)
class Suggestion:
    """One change.

    Attributes
    ----------
    title : str
        What to change.
    why : str
        With the figures that speak for it.
    change : str
        The same as code.
    gain : Gain or None
        None where nothing was measured and nothing estimated.
    saves : int
        Bytes of one card's memory that it frees by the estimate; negative where it takes more.
    needed : bool
        Without it, or another that is needed, a step does not fit a card.
    command : str
        A line that makes the change in a notebook; empty where none does.
    by_hand : str
        Why none does.
    """

    title: str
    why: str
    change: str
    gain: Gain | None = None
    saves: int = 0
    needed: bool = False
    command: str = ""
    by_hand: str = ""

    @property
    def gain_text(self) -> str:
        """What it gains, in words."""
        if self.needed:
            speed = f"; speed {self.gain}" if self.gain is not None else ""
            return f"fits, {units.size(self.saves)} less (estimate){speed}"
        return str(self.gain) if self.gain is not None else "not known"


def times(factor: float) -> str:
    """Write a factor with three digits, for example ``1.62x`` or ``130x``."""
    return f"{factor:.{max(0, 2 - max(0, math.floor(math.log10(factor))))}f}x"


def estimated(before: float, after: float, bands: tuple[Band, Band]) -> Gain:
    """Return what an estimate says of two paces in samples a second.

    The bands of both are taken to err independently of each other, in factors.
    """
    (low, high), (other_low, other_high) = bands
    factor = after / before
    slower = math.hypot(math.log(low), math.log(other_high))
    faster = math.hypot(math.log(high), math.log(other_low))
    return Gain(factor, "estimate", (factor * math.exp(-slower), factor * math.exp(faster)))


def measured(share: float) -> Gain:
    """Return what a share of the time, 0 to 1, would gain if none of it were lost."""
    return Gain(1 / (1 - min(share, 0.99)), "measured")
