"""The device at a glance: card, mode, versions, memory, and who holds which card."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hpu_magic import backend, monitor, units
from hpu_magic.monitor import CardReading, Snapshot
from hpu_magic.requirements import Conflict, conflicts
from hpu_magic.runtime.device import device
from hpu_magic.runtime.execution import mode
from hpu_magic.runtime.present.report import Report, Row


@dataclass(repr=False)
class StatusReport(Report):
    """State of the device, read without taking a card.

    Attributes
    ----------
    simulated : bool
        Whether the vendor's package is absent and the device therefore simulated.
    card : CardReading or None
        The card of this process; None as long as it has taken none.
    machine : Snapshot
        All cards and the processes that hold them.
    mode : ModeReport
        Loaded and requested execution mode.
    versions : dict of str to str
        Of torch, the bridge and the driver, as far as they are known.
    memory_in_use, memory_limit : int or None
        Bytes of this process; None without a card.
    conflicts : list of Conflict
        Installed libraries that say of each other that they do not go together.
    """

    simulated: bool
    card: CardReading | None
    machine: Snapshot
    mode: mode.ModeReport
    versions: dict[str, str]
    memory_in_use: int | None
    memory_limit: int | None
    conflicts: Sequence[Conflict] = ()

    def title(self) -> str:
        """Return the headline."""
        kind = "SIMULATED on the CPU, no Gaudi here" if self.simulated else "Intel Gaudi"
        name = device.label() if device.taken() else f"{device.family()}, no card taken yet"
        return f"{name}: {kind}"

    def rows(self) -> Sequence[Row]:
        """Return the state line by line."""
        loaded = self.mode.loaded or "not loaded yet"
        wanted = self.mode.requested
        asked = f", {wanted} requested" if wanted not in (None, self.mode.loaded) else ""
        rows = [("card", self._card()), ("mode", loaded + asked), ("memory", self._memory())]
        rows += list(self.versions.items())
        return rows + self._holders()

    def notes(self) -> Sequence[str]:
        """Say why there is nothing to show, or what mends a mode that waits for a restart."""
        reason = [self.machine.reason] if self.machine.reason else []
        return reason + list(self.mode.notes())

    def warnings(self) -> Sequence[str]:
        """Say which libraries do not go together."""
        return [str(conflict) for conflict in self.conflicts]

    def _card(self) -> str:
        if self.card is not None:
            return f"{self.card.label}, owned by this process, which calls it hpu:0"
        if device.taken():
            return "owned by this process"
        free = sum(not card.holders and not card.error for card in self.machine.cards)
        return f"none taken yet: {free} of {len(self.machine.cards)} are free"

    def _memory(self) -> str:
        if self.memory_in_use is None or not self.memory_limit:
            return "none in use"
        used, limit = units.size(self.memory_in_use), units.size(self.memory_limit)
        return f"{used} of {limit} ({units.share(self.memory_in_use, self.memory_limit)})"

    def _holders(self) -> list[Row]:
        return [
            (card.label, f"held by {holders_of(card)}")
            for card in self.machine.cards
            if card.holders or card.error
        ]


def holders_of(card: CardReading) -> str:
    """Name the processes that hold a card, or say why nobody knows."""
    if card.error:
        return f"nobody knows: {card.error}"
    return ", ".join(
        f"this process (pid {one.pid})"
        if one.pid == os.getpid()
        else f"{one.described()} (pid {one.pid or 'unknown'})"
        for one in card.holders
    )


def current_status(cells: Sequence[str] = ()) -> StatusReport:
    """Return the state of the device without taking a card or importing torch.

    Parameters
    ----------
    cells : sequence of str
        The notebook's cells so far, searched for the line that loaded torch.
    """
    machine = monitor.snapshot()
    memory: tuple[int | None, int | None] = (None, None)
    if device.taken():
        stats = sys.modules["torch"].hpu.memory_stats()
        memory = (stats["InUse"], stats["Limit"])
    return StatusReport(
        simulated=backend.is_simulated(),
        card=device.own_card(machine),
        machine=machine,
        mode=mode.request(cells=cells),
        versions=_versions(),
        memory_in_use=memory[0],
        memory_limit=memory[1],
        conflicts=conflicts(),
    )


def _versions() -> dict[str, str]:
    versions = {}
    torch = sys.modules.get("torch")
    versions["torch"] = (
        torch.__version__ if torch else f"{backend.installed_version('torch')} (not imported)"
    )
    versions["bridge"] = backend.version()
    # Asked of the bridge, so only where a card is taken already.
    if torch is not None and device.taken():
        versions["driver"] = str(torch.hpu.get_device_capability())
    return versions
