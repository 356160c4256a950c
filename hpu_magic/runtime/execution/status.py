"""The device status: card, mode, versions, memory, and the processes that hold each card."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpu_magic import backend, monitor, units
from hpu_magic.errors import HPUError
from hpu_magic.monitor import CardReading, Snapshot
from hpu_magic.requirements import Conflict, conflicts
from hpu_magic.runtime.device import device
from hpu_magic.runtime.execution import mode
from hpu_magic.runtime.present.report import Report, Row, plain

_HELP = "append ? to show help, as in %hpu_to?"


@dataclass(repr=False)
class StatusReport(Report):
    """State of the device, read without acquiring a card."""

    simulated: bool  #: whether the device is simulated because the vendor's package is absent
    card: CardReading | None  #: the card of this process; None before it acquires one
    machine: Snapshot  #: all cards and the processes that hold them
    mode: mode.ModeReport  #: the loaded and the requested execution mode
    versions: dict[str, str]  #: versions of torch, the bridge and the driver, if known
    in_use: int | None
    limit: int | None
    """Device memory of this process in bytes; None without a card."""
    conflicts: Sequence[Conflict] = ()
    """Installed packages with conflicting requirements."""
    commands: Sequence[tuple[str, str]] = field(default=(), repr=False)
    """Available commands with their descriptions; empty outside a notebook."""

    def title(self) -> str:
        """Return the headline."""
        kind = "SIMULATED on the CPU (no Gaudi card)" if self.simulated else "Intel Gaudi"
        name = device.label() if device.taken() else f"{device.family()}, no card in use yet"
        return f"{name}: {kind}"

    def rows(self) -> Sequence[Row]:
        """Return the card, mode, memory, versions and holders."""
        mode = self.mode.loaded or "not loaded yet"
        requested = self.mode.requested
        if requested not in (None, self.mode.loaded):
            mode += f", {requested} requested"
        rows = [("card", self._card()), ("mode", mode), ("memory", self._memory())]
        rows += list(self.versions.items())
        return rows + self._holders()

    def notes(self) -> Sequence[str]:
        """Return notes on why there are no cards, and on how a requested mode takes effect."""
        reason = [self.machine.reason] if self.machine.reason else []
        return reason + list(self.mode.notes())

    def warnings(self) -> Sequence[str]:
        """Return one sentence per conflict."""
        return [str(conflict) for conflict in self.conflicts]

    def __repr__(self) -> str:
        lines = [super().__repr__()]
        if self.commands:
            width = max(len(name) for name, _ in self.commands)
            lines.append(f"  Commands ({_HELP}):")
            lines += [f"    {name:<{width}}  {text}" for name, text in self.commands]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'><code>{plain(name)}</code></td>"
            f"<td style='text-align:left'>{plain(text)}</td></tr>"
            for name, text in self.commands
        )
        listed = f"<div>Commands ({_HELP}):</div><table>{rows}</table>" if rows else ""
        return super()._repr_html_() + listed

    def _card(self) -> str:
        if self.card is not None:
            return f"{self.card.label}, held by this process as hpu:0"
        if device.taken():
            return "held by this process"
        free = sum(not card.holders and not card.error for card in self.machine.cards)
        return f"none in use yet: {free} of {len(self.machine.cards)} are free"

    def _memory(self) -> str:
        if self.in_use is None or not self.limit:
            return "none in use"
        used, limit = units.size(self.in_use), units.size(self.limit)
        return f"{used} of {limit} ({units.share(self.in_use, self.limit)})"

    def _holders(self) -> list[Row]:
        return [
            (card.label, f"held by {card.held_by()}")
            for card in self.machine.cards
            if card.holders or card.error
        ]


@dataclass(repr=False)
class CardReport(Report):
    """One card of the machine."""

    card: CardReading  #: its readings and holders

    def title(self) -> str:
        """Return the headline."""
        return f"{self.card.label}: {self.card.name}{', simulated' * self.card.simulated}"

    def rows(self) -> Sequence[Row]:
        """Return the known readings and the holders."""
        card = self.card
        rows = []
        if card.memory_used is not None and card.memory_total:
            rows.append(("memory", units.usage(card.memory_used, card.memory_total)))
        for label, value, unit in (
            ("busy", card.utilization, "%"),
            ("temperature", card.temperature, " °C"),
            ("power", card.power, " W"),
            ("clock", card.clock, " MHz"),
        ):
            if value is not None:
                rows.append((label, f"{value:.0f}{unit}"))
        return [*rows, ("held by", card.held_by() or "no process")]


def card_status(number: int) -> CardReport:
    """Return the state of the card with this number; raise `HPUError` if there is none."""
    machine = monitor.snapshot()
    for card in machine.cards:
        if card.module_id == number:
            return CardReport(card)
    known = ", ".join(card.label for card in machine.cards) or "no cards"
    raise HPUError(f"This machine has no HPU {number}; it has {known}.")


def current_status(cells: Sequence[str] = ()) -> StatusReport:
    """Return the state of the device without acquiring a card or importing torch.

    The function searches ``cells``, the notebook cells that have run, for the line that loaded
    torch.
    """
    machine = monitor.snapshot()
    memory = device.memory()
    return StatusReport(
        simulated=backend.is_simulated(),
        card=device.own_card(machine),
        machine=machine,
        mode=mode.request(cells=cells),
        versions=_versions(),
        in_use=memory and memory.in_use,
        limit=memory and memory.limit,
        conflicts=conflicts(),
    )


def _versions() -> dict[str, str]:
    versions = {}
    torch = sys.modules.get("torch")
    versions["torch"] = (
        torch.__version__ if torch else f"{backend.installed_version('torch')} (not imported)"
    )
    versions["bridge"] = backend.version()
    # The bridge can report the driver version only after a card has been acquired.
    if torch is not None and device.taken():
        versions["driver"] = str(torch.hpu.get_device_capability())
    return versions
