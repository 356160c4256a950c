"""``hl-smi`` without options: a 79-character-wide table of all cards and their holders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpu_magic.simulator.cards.hl_smi.card_properties import NOT_AVAILABLE, Aip, mebibytes
from hpu_magic.simulator.release import DRIVER

_WIDTH = 77
_RULE = "|-------------------------------+----------------------+----------------------+"
_DOUBLE_RULE = "|===============================+======================+======================|"
_HEAD = [
    _RULE,
    "| AIP  Name        Persistence-M| Bus-Id        Disp.A |  Volatile Uncorr. ECC|",
    "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | AIP-Util  Compute M. |",
    _DOUBLE_RULE,
]
_PROCESSES = [
    _DOUBLE_RULE,
    "| Compute Processes:                                               AIP Memory |",
    "|  AIP       PID   Type   Process name                             Usage      |",
    f"|{'=' * _WIDTH}|",
]


def table(aips: Sequence[Aip]) -> list[str]:
    """Return the lines of the table."""
    lines = [f"+{'-' * _WIDTH}+", *versions(), *_HEAD]
    for number, aip in enumerate(aips):
        lines += [_RULE] * bool(number) + _card(aip)
    return [*lines, *_PROCESSES, *map(_process, aips), f"+{'=' * _WIDTH}+"]


def versions() -> list[str]:
    """Return the lines with the version numbers."""
    versions = {
        "HL-SMI Version:": f"hl-{DRIVER}",
        "Driver Version:": DRIVER,
        "Nic Driver Version:": NOT_AVAILABLE,
    }
    return [f"| {name:<20}{version:>44}            |" for name, version in versions.items()]


def _card(aip: Aip) -> list[str]:
    no = NOT_AVAILABLE
    memory = f"{_memory(aip.used):>9} / {_memory(aip.total):>8}"
    return [
        f"|{aip.index:>4}  {aip.name:<20}{no}  | {aip.bus_id:<12}     {no} |{no:>20}  |",
        f"| {no}   {no}   {no}{f'{no} / {no}':>14} |{memory}  |{no:>7}{no:>14} |",
    ]


def _process(aip: Aip) -> str:
    words: Iterable[str] = [NOT_AVAILABLE] * 4
    if aip.pid is not None:
        words = (str(aip.pid or NOT_AVAILABLE), "C", aip.command[:40], _memory(aip.used))
    pid, kind, command, memory = words
    return f"|{aip.index:>4}{pid:>11}   {kind:<3}    {command:<41}{memory:<11}|"


def _memory(size: int | None) -> str:
    number = mebibytes(size)
    return NOT_AVAILABLE if number is None else f"{number}MiB"
