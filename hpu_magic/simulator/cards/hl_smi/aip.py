"""A simulated card as the vendor's tool calls and shows it; None stands for what there is not."""

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
        Its number, which is its module's too.
    name : str
        The product of its generation.
    bus_id : str
        An address in a PCI domain that machines do not have, so that it is no real card's.
    total : int
        Bytes of memory.
    used : int or None
        Bytes in use; None where the card's page is damaged.
    pid : int or None
        Who holds it; 0 is a process that cannot be seen from here.
    command : str
        That process's name.
    """

    index: int
    name: str
    bus_id: str
    total: int
    used: int | None
    pid: int | None
    command: str


def aips() -> list[Aip]:
    """Read all simulated cards without acquiring any.

    Raises
    ------
    RuntimeError, ValueError
        The cards' directory or an environment variable is not as it may be.
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
    """Return whole MiB of a number of bytes."""
    return None if size is None else str(size >> 20)
