"""``hl-smi -q``: all values of each card, grouped into sections that ``-d`` can select."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hpu_magic.simulator.cards.hl_smi.card_properties import NOT_AVAILABLE, Aip, mebibytes
from hpu_magic.simulator.cards.hl_smi.fields import now
from hpu_magic.simulator.release import DRIVER

_Section = dict[str, str | None]

SECTIONS = (
    "PRODUCT",
    "POWER",
    "CLOCK",
    "TEMPERATURE",
    "FAN",
    "BUS",
    "MEMORY",
    "NET",
    "ROW_REPLACEMENT",
)


def query(aips: Sequence[Aip], sections: Collection[str] = SECTIONS) -> list[str]:
    """Return the lines that describe the machine, followed by each card's `sections`."""
    lines = [
        "================ HL-SMI LOG ================",
        _line("Timestamp", now()),
        _line("HL-SMI Version", f"hl-{DRIVER}"),
        _line("Driver Version", DRIVER),
        _line("Device number", str(len(aips))),
    ]
    for aip in aips:
        lines += ["", f"[{aip.index}] AIP {aip.bus_id}"]
        for title, section in _sections(aip).items():
            if title in sections:
                lines.append(f"\t{title.replace('_', ' ').capitalize()}")
                lines += [f"\t\t{_line(name, value)}" for name, value in section.items()]
    return lines


def _sections(aip: Aip) -> dict[str, _Section]:
    free = None if aip.used is None else aip.total - aip.used
    return {
        "PRODUCT": {
            "Product Name": f"{aip.name} (simulated)",
            "Serial Number": None,
            "Module ID": str(aip.index),
            "AIP UUID": None,
        },
        "POWER": {"Power Draw": None, "Power Limit": None},
        "CLOCK": {"SOC": None},
        "TEMPERATURE": {"AIP": None},
        "FAN": {"Fan Speed": None},
        "BUS": {"Bus Id": aip.bus_id},
        "MEMORY": {
            name: None if size is None else f"{mebibytes(size)} MiB"
            for name, size in (("Total", aip.total), ("Used", aip.used), ("Free", free))
        },
        "NET": {"Ports": None},
        "ROW_REPLACEMENT": {"Replaced Rows": None},
    }


def _line(name: str, value: str | None) -> str:
    return f"{name:<24}: {NOT_AVAILABLE if value is None else value}"
