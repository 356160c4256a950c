"""``hl-smi -Q FIELDS -f csv``: selected fields as comma-separated values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone

from hpu_magic.simulator.cards.hl_smi.card_properties import NOT_AVAILABLE, Aip, mebibytes
from hpu_magic.simulator.release import DRIVER

_Value = Callable[[Aip], str | None]


def _nothing(aip: Aip) -> None:
    """Return None, for values that a simulated card does not have."""


# Maps the name of a field to its unit and a function that returns its value.
FIELDS: dict[str, tuple[str, _Value]] = {
    "timestamp": ("", lambda aip: now()),
    "index": ("", lambda aip: str(aip.index)),
    "name": ("", lambda aip: aip.name),
    "uuid": ("", _nothing),
    "serial": ("", _nothing),
    "bus_id": ("", lambda aip: aip.bus_id),
    "module_id": ("", lambda aip: str(aip.index)),
    "driver_version": ("", lambda aip: DRIVER),
    "memory.total": ("MiB", lambda aip: mebibytes(aip.total)),
    "memory.used": ("MiB", lambda aip: mebibytes(aip.used)),
    "memory.free": (
        "MiB",
        lambda aip: mebibytes(None if aip.used is None else aip.total - aip.used),
    ),
    "utilization.aip": ("%", _nothing),
    "temperature.aip": ("C", _nothing),
    "power.draw": ("W", _nothing),
    "clocks.current.soc": ("MHz", _nothing),
    "clocks.limit.soc": ("MHz", _nothing),
    "clocks.limit.tpc": ("MHz", _nothing),
    "rows.replaced": ("", _nothing),
    "rows.pending": ("", _nothing),
}


def now() -> str:
    """Return the current time in the format of the ``date`` command."""
    return datetime.now(timezone.utc).strftime("%a %b %d %H:%M:%S UTC %Y")


def rows(aips: Iterable[Aip], fields: Sequence[str], *, header: bool, units: bool) -> list[str]:
    """Return one line per card, optionally preceded by a header line with the field names."""
    lines = [", ".join(map(_heading, fields))] if header else []
    return lines + [", ".join(_cell(aip, field, units) for field in fields) for aip in aips]


def _heading(field: str) -> str:
    unit, _ = FIELDS[field]
    return f"{field} [{unit}]" if unit else field


def _cell(aip: Aip, field: str, units: bool) -> str:
    unit, value = FIELDS[field]
    text = value(aip)
    if text is None:
        return NOT_AVAILABLE
    return f"{text} {unit}" if unit and units else text
