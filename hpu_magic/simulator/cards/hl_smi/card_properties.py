"""A simulated card with the properties that the vendor's tool shows."""

from __future__ import annotations

from dataclasses import dataclass

from hpu_magic.simulator.cards import driver

NOT_AVAILABLE = "N/A"

_PRODUCTS = {"GAUDI": "HL-205", "GAUDI2": "HL-225", "GAUDI3": "HL-325L"}


@dataclass(frozen=True)
class Aip:
    """One card.

    Attributes
    ----------
    index : int
        The card's number, which is also its module id.
    name : str
        The product name of the card's generation.
    bus_id : str
        The card's PCI address, in a domain that does not exist on real machines.
    total : int
        The memory in bytes.
    used : int or None
        The number of bytes in use, or None if the card's page is damaged.
    pid : int or None
        The process that uses the card, or 0 if that process is not visible.
    command : str
        The name of that process.
    """

    index: int
    name: str
    bus_id: str
    total: int
    used: int | None
    pid: int | None
    command: str


def aips() -> list[Aip]:
    """Return all simulated cards without acquiring one.

    Raises
    ------
    RuntimeError, ValueError
        The cards' directory or an environment variable is invalid.
    """
    return [_aip(state) for state in driver.snapshot()]


def _aip(state: driver.CardState) -> Aip:
    return Aip(
        index=state.module_id,
        name=_PRODUCTS[state.generation],
        bus_id=f"ffff:{state.module_id:02x}:00.0",
        total=state.capacity,
        used=None if state.error else state.in_use,
        pid=state.holder.pid if state.holder else None,
        command=state.holder.command if state.holder else "",
    )


def mebibytes(size: int | None) -> str | None:
    """Convert a number of bytes to whole MiB."""
    return None if size is None else str(size >> 20)
