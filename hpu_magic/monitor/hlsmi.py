"""Read real cards through the vendor's program ``hl-smi`` if HLML is unavailable.

Columns in the comma-separated output are identified by name, because the fields differ between
releases. If a release does not support this output format, its table is parsed instead.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hpu_magic.errors import HPUError
from hpu_magic.monitor.processes import DeviceHolders, describe, device_holders, minors_by_bus
from hpu_magic.monitor.reading import UNKNOWN, CardReading, generation
from hpu_magic.plain_text import printable
from hpu_magic.simulator.cards import hl_smi

_PROGRAM = "hl-smi"
_TIMEOUT = 4.0  # total timeout of the calls for one snapshot, in seconds
_FIELDS = (
    "index",
    "module_id",
    "bus_id",
    "name",
    "memory.used",
    "memory.total",
    "utilization.aip",
    "temperature.aip",
    "power.draw",
    "clocks.current.soc",
)

_MEMORY = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "": 1 << 20}
# Maps fields to scale factors, keyed by the unit in the cell or in the column heading.
_SCALES: dict[str, Mapping[str, float]] = {
    "memory.used": _MEMORY,
    "memory.total": _MEMORY,
    "utilization.aip": {"%": 1, "": 1},
    "temperature.aip": {"c": 1, "": 1},
    "power.draw": {"w": 1, "mw": 0.001, "": 1},
    "clocks.current.soc": {"mhz": 1, "ghz": 1000, "": 1},
}

_HEADING = re.compile(r"(?P<field>[\w.]+)\s*(?:\[(?P<unit>[^]]*)\])?")
_VALUE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z%]*)")

_BUS = r"(?P<bus>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])"
_FIRST_LINE = re.compile(rf"\|\s*(?P<index>[0-9]+)\s+(?P<name>HL-\S+)\s.*?\|\s*{_BUS}\s")
# Parts of the second line for a card; each of them can be N/A.
_PARTS = {
    "memory.used": re.compile(r"([0-9]+\s*[KMG]iB)\s*/\s*[0-9]+\s*[KMG]iB"),
    "memory.total": re.compile(r"[0-9]+\s*[KMG]iB\s*/\s*([0-9]+\s*[KMG]iB)"),
    "utilization.aip": re.compile(r"\|\s*([0-9]+\s*%)"),
    "temperature.aip": re.compile(r"\s([0-9]+\s*C)\s"),
    "power.draw": re.compile(r"\s([0-9]+\s*W)\s*/"),
}
_DRIVER = re.compile(r"(?<!Nic )Driver Version:\s*([0-9][\w.+-]*)")
# Names of firmware builds contain the release, for example hl-gaudi2-1.21.0-fw-59.1.0.
_FIRMWARE = re.compile(r"\bhl-(?:\w+-)?([0-9]+\.[0-9]+\.[0-9]+)-fw")
_PROCESS = re.compile(r"\|\s*(?P<index>[0-9]+)\s+(?P<pid>[0-9]+)\s+\S.*\|")


class HlSmiUnavailableError(HPUError):
    """Raised if ``hl-smi`` fails; the message states the reason in one sentence."""


@dataclass(frozen=True)
class _Listed:
    """A card as listed in the program's output, with its bus address and processes."""

    card: CardReading
    bus: str
    pids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Versions:
    """The driver and firmware versions, such as ``"1.21.0-a3b9c1d"`` and ``("1.21.0",)``.

    `firmware` contains the firmware releases of the cards, without duplicates.
    """

    driver: str | None
    firmware: tuple[str, ...]


_supports_fields = True


def installed() -> bool:
    """Return whether the vendor's program is installed; the simulator's program does not count."""
    return program() is not None


def program() -> str | None:
    """Return the path of the vendor's program, or None if it is not installed."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which(_PROGRAM, path=folder)
        if found and not hl_smi.is_simulated(found):
            return found
    return None


def read() -> tuple[tuple[CardReading, ...], DeviceHolders]:
    """Return the cards that the driver reports and their holders, without acquiring a card.

    Raises HlSmiUnavailableError if the program is missing, fails, takes too long, or prints output
    in an unknown format.
    """
    rows = _rows(time.monotonic() + _TIMEOUT)
    processes = device_holders()
    minors = minors_by_bus()
    cards = []
    for row in rows:
        holders = processes.by_minor.get(minors.get(row.bus.lower(), -1), ())
        cards.append(replace(row.card, holders=holders or tuple(map(describe, row.pids))))
    return tuple(cards), processes


def versions() -> Versions:
    """Return the driver and firmware versions, without acquiring a card.

    Raises HlSmiUnavailableError if the program is missing, fails or takes too long.
    """
    deadline = time.monotonic() + _TIMEOUT
    driver = _DRIVER.search(_run(deadline))
    try:
        firmware = _FIRMWARE.findall(_run(deadline, "--fw-versions"))
    except HlSmiUnavailableError:  # some releases do not have this option
        firmware = []
    return Versions(driver[1] if driver else None, tuple(dict.fromkeys(firmware)))


def _rows(deadline: float) -> list[_Listed]:
    global _supports_fields
    if _supports_fields:
        query = (f"--query-aip={','.join(_FIELDS)}", "--format=csv")
        try:
            return parse_fields(_run(deadline, *query))
        except HlSmiUnavailableError:
            if time.monotonic() >= deadline:
                raise
    rows = parse_table(_run(deadline))
    _supports_fields = False
    return rows


def _run(deadline: float, *arguments: str) -> str:
    found = program()
    if found is None:
        raise HlSmiUnavailableError(f"{_PROGRAM} is not on PATH.")
    remaining = max(deadline - time.monotonic(), 0.1)
    try:
        done = subprocess.run(
            [found, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=remaining,
        )
    except subprocess.TimeoutExpired:
        raise HlSmiUnavailableError(f"{_PROGRAM} did not answer within {_TIMEOUT:g} s.") from None
    except OSError as error:
        raise HlSmiUnavailableError(f"{_PROGRAM} cannot be run: {error.strerror}.") from error
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()
        text = f": {printable(output[0])}" if output else ""
        raise HlSmiUnavailableError(f"{_PROGRAM} exited with code {done.returncode}{text}.")
    return done.stdout


def parse_fields(text: str) -> list[_Listed]:
    """Parse the comma-separated output.

    Raises HlSmiUnavailableError if the headings do not include index and memory.used.
    """
    lines = csv.reader(text.splitlines(), skipinitialspace=True)
    for line in lines:
        headings = [_HEADING.fullmatch(cell.strip()) for cell in line]
        fields = [heading["field"].lower() if heading else "" for heading in headings]
        if "index" in fields and "memory.used" in fields:
            break
    else:
        raise HlSmiUnavailableError(f"The output of {_PROGRAM} has no column headings.")
    units = {
        field: heading["unit"] or ""
        for field, heading in zip(fields, headings, strict=True)
        if heading
    }
    rows = []
    for line in lines:
        values = {field: cell.strip() for field, cell in zip(fields, line, strict=False)}
        if values.get("index", "").isdecimal():
            rows.append(_row(values, units))
    return rows


def parse_table(text: str) -> list[_Listed]:
    """Parse the table, which has two lines per card, followed by one line per process.

    Raises HlSmiUnavailableError if the table does not contain any card.
    """
    rows: dict[int, _Listed] = {}
    pids: dict[int, list[int]] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if first := _FIRST_LINE.match(line):
            second = next(lines, "")
            parts = {field: part.search(second) for field, part in _PARTS.items()}
            values = {field: part[1] for field, part in parts.items() if part}
            values |= {"index": first["index"], "name": first["name"], "bus_id": first["bus"]}
            rows[int(first["index"])] = _row(values, {})
        elif process := _PROCESS.match(line):
            pids.setdefault(int(process["index"]), []).append(int(process["pid"]))
    if not rows:
        raise HlSmiUnavailableError(
            f"The output of {_PROGRAM} does not contain a card in a known format."
        )
    return [replace(row, pids=tuple(pids.get(index, ()))) for index, row in rows.items()]


def _row(values: Mapping[str, str], units: Mapping[str, str]) -> _Listed:
    index = int(values["index"])
    numbers = {
        field: _number(values.get(field, ""), units.get(field, ""), scales)
        for field, scales in _SCALES.items()
    }
    used, total = numbers["memory.used"], numbers["memory.total"]
    module_id = values.get("module_id", "")
    name = values.get("name", "")
    card = CardReading(
        index=index,
        module_id=int(module_id) if module_id.isdecimal() else UNKNOWN,
        name=name,
        generation=generation(name),
        simulated=False,
        memory_used=None if used is None else int(used),
        memory_total=None if total is None else int(total),
        utilization=numbers["utilization.aip"],
        temperature=numbers["temperature.aip"],
        power=numbers["power.draw"],
        clock=numbers["clocks.current.soc"],
    )
    return _Listed(card, values.get("bus_id", ""))


def _number(text: str, unit: str, scales: Mapping[str, float]) -> float | None:
    """Return a value in the unit used by `CardReading`, or None for N/A and unknown formats."""
    found = _VALUE.fullmatch(text)
    if not found:
        return None
    scale = scales.get((found["unit"] or unit).strip().lower())
    return None if scale is None else float(found["number"]) * scale
