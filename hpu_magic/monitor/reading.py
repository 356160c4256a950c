"""A snapshot of the machine's cards, independent of its source."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from hpu_magic.holders import Holder

Source = Literal["hlml", "hl-smi", "simulator", "none"]

UNKNOWN = -1
"""Placeholder for the module ID of a card that does not report one; `snapshot` replaces it."""


@dataclass(frozen=True)
class CardReading:
    """A card at one point in time; values that the source does not report are None.

    Attributes
    ----------
    index : int
        Position in the driver's list; the numbering may be different in a container.
    module_id : int
        The number that users and the vendor's bridge use to identify the card.
    name : str
        Product name, such as ``"HL-225"`` for a real card or ``"GAUDI2"`` for a simulated card.
    generation : str or None
        ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``.
    simulated : bool
        Whether the card is simulated.
    memory_used, memory_total : int or None
        Memory in bytes.
    utilization : float or None
        Percentage of time during which the card is computing.
    temperature : float or None
        On-chip temperature in degrees Celsius.
    power : float or None
        Power draw in watts.
    clock : float or None
        Clock rate of the chip in megahertz.
    holders : tuple of Holder
        Processes that hold the card, as far as they are visible to this user.
    error : str or None
        Why the card could not be read.
    """

    index: int
    module_id: int
    name: str
    generation: str | None
    simulated: bool
    memory_used: int | None
    memory_total: int | None
    utilization: float | None = None
    temperature: float | None = None
    power: float | None = None
    clock: float | None = None
    holders: tuple[Holder, ...] = ()
    error: str | None = None

    @property
    def label(self) -> str:
        """The card's name as shown to users, such as ``HPU 3``."""
        return f"HPU {self.module_id}"

    def held_by(self) -> str:
        """Return the names of the holders, or the error of a card that cannot be read."""
        if self.error:
            return f"an unknown holder ({self.error})"
        return ", ".join(holder.named() for holder in self.holders)

    @property
    def in_use(self) -> bool:
        """Whether more memory is in use than on an idle card, where the driver uses about 1 %."""
        return bool(
            self.memory_used and self.memory_total and self.memory_used > self.memory_total / 50
        )


@dataclass(frozen=True)
class Snapshot:
    """All cards of the machine at one point in time.

    Attributes
    ----------
    cards : tuple of CardReading
        Sorted by module ID.
    source : {"hlml", "hl-smi", "simulator", "none"}
    reason : str or None
        One sentence that explains why there are no cards or which information is missing.
    """

    cards: tuple[CardReading, ...]
    source: Source
    reason: str | None = None

    def as_record(self) -> dict[str, Any]:
        """Return the snapshot as plain data, with the current ``time`` in seconds since the epoch.

        The other keys are the attributes of `Snapshot`, `CardReading`, `Holder` and `Fit`.
        """
        cards = []
        for card in self.cards:
            holders = [
                {**vars(each), "fit": each.fit and each.fit.as_record()} for each in card.holders
            ]
            cards.append({**vars(card), "holders": holders})
        return {"time": round(time.time(), 3), **vars(self), "cards": cards}


_GENERATIONS = {"HL-20": "GAUDI", "HL-22": "GAUDI2", "HL-3": "GAUDI3"}


def generation(name: str) -> str | None:
    """Return a real card's generation, given its name, such as ``"GAUDI2"`` for ``"HL-225"``."""
    return next((label for prefix, label in _GENERATIONS.items() if name.startswith(prefix)), None)
