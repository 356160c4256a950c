"""What a look at the machine's cards gives, whatever the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpu_magic import sessions

Source = Literal["hlml", "hl-smi", "simulator", "none"]


@dataclass(frozen=True)
class Holder:
    """A process that holds a card.

    Attributes
    ----------
    pid : int
        0 when the process lives in another PID namespace and cannot be named.
    command : str
        Its notebook, or its program and script: ``python train.py``. No arguments, unless
        `processes.with_arguments` put them there.
    user : str or None
        Its owner's login name, where it can be told.
    idle : float or None
        Seconds since it last ran a cell, 0 while it runs one; None where it is no interactive
        session, or tells nothing.
    fit : Fit or None
        The fit that runs in it, where it tells of one.
    """

    pid: int
    command: str
    user: str | None
    idle: float | None = None
    fit: sessions.Fit | None = None

    def described(self) -> str:
        """Name it and say for how long it has been idle: ``first.ipynb, idle for 2 h``."""
        return ", ".join(filter(None, (self.command, sessions.activity(self.idle, self.fit))))


UNKNOWN = -1
"""Module id of a card that does not tell its own, until `snapshot` finds one for it."""


@dataclass(frozen=True)
class CardReading:
    """One card at one moment; None stands for what the source does not know.

    Attributes
    ----------
    index : int
        Position in the driver's list, which a container may number differently.
    module_id : int
        The number under which the vendor's bridge acquires it, and by which users know it.
    name : str
        ``"HL-225"`` of a real card, ``"GAUDI2"`` of a simulated one.
    generation : str or None
        ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``.
    simulated : bool
        Whether the card is simulated.
    memory_used, memory_total : int or None
        Bytes.
    utilization : float or None
        Percent of the time that the card computes.
    temperature : float or None
        Degrees Celsius on the chip.
    power : float or None
        Watts.
    clock : float or None
        Megahertz of the chip's clock.
    holders : tuple of Holder
        Processes that hold the card, as far as this user may see them.
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
        """The card's name for users: ``HPU 3``."""
        return f"HPU {self.module_id}"

    @property
    def in_use(self) -> bool:
        """Whether more of its memory is in use than of a free card, up to a hundredth or so."""
        return bool(
            self.memory_used and self.memory_total and self.memory_used > self.memory_total / 50
        )


@dataclass(frozen=True)
class Snapshot:
    """All cards of the machine at one moment.

    Attributes
    ----------
    cards : tuple of CardReading
        In the order of their module ids.
    source : {"hlml", "hl-smi", "simulator", "none"}
        Where the readings come from.
    reason : str or None
        In one sentence why there are no cards to show, or what could not be seen of them.
    """

    cards: tuple[CardReading, ...]
    source: Source
    reason: str | None = None


_GENERATIONS = {"HL-20": "GAUDI", "HL-22": "GAUDI2", "HL-3": "GAUDI3"}


def generation(name: str) -> str | None:
    """Return the generation of a real card by its name, such as ``"GAUDI2"`` for ``"HL-225"``."""
    return next((label for prefix, label in _GENERATIONS.items() if name.startswith(prefix)), None)
