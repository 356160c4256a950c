"""Measure the device overhead of code: compilations, fallbacks and synchronizations.

The vendor's metrics provide the totals. The vendor's event dispatcher reports events and, if known,
their source lines. PyTorch records graph breaks and in-place operations. Replays are counted by
`hpu_magic.runtime.graphs.replays`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.peak import Peak
from hpu_magic.runtime.graphs import replays
from hpu_magic.runtime.measure import graph_breaks, versions
from hpu_magic.runtime.measure.card_time import CardWatch
from hpu_magic.runtime.measure.device_counts import DeviceCounts
from hpu_magic.runtime.measure.ledger_report import (
    COMPILATION,
    FALLBACK,
    GRAPH_BREAK,
    WAIT,
    Entry,
    LedgerReport,
)

Place = Callable[[str, int], str]

# Maps the dispatcher's event ids to kinds of entries.
_EVENTS = {
    "GRAPH_COMPILATION": COMPILATION,
    "CPU_FALLBACK": FALLBACK,
    "CUSTOM_EVENT": WAIT,
}
_MOST_ENTRIES = 500
# The event that is emitted when a cached graph runs again. If all operations are in place, no other
# event is emitted.
_RUN_AGAIN = "CACHE_HIT"


# Ledgers whose blocks are running, innermost last.
_open: list[Ledger] = []


def innermost() -> LedgerReport | None:
    """Return the report of the innermost running ledger, which is filled in when its block ends."""
    return _open[-1]._report if _open else None


def _file_and_line(file: str, line: int) -> str:
    return f"{os.path.basename(file)}, line {line}"


class Ledger:
    """Records the overhead of a ``with`` block: use ``with Ledger() as costs``, then read `costs`.

    The block resets the device's peak memory statistic. Blocks can be nested; each has its own
    ledger and peak. A ledger can be reused for several consecutive blocks.

    At the end of the block, ``place`` is called with a file and a line number, and returns the text
    to display for that line. The version counters of the tensors in ``namespace``, such as
    ``globals()``, show whether they were modified in place (see
    `hpu_magic.runtime.measure.versions.versions`); in eager mode, this is the only sign of in-place
    operations. ``show`` selects the parts of the line to show; if it is empty, all parts are
    shown.
    """

    # Set when the first wait is reported, because a device that cannot report waits looks like one
    # that never waits.
    _waits_are_reported = False

    def __init__(
        self,
        place: Place = _file_and_line,
        namespace: Mapping[str, Any] | None = None,
        show: Sequence[str] = (),
    ) -> None:
        self.place = place
        self.namespace = {} if namespace is None else namespace
        self.show = tuple(show)
        self._reset()

    def _reset(self) -> None:
        self._report = LedgerReport(show=self.show)
        self._entries: dict[tuple[str, str, str, int, str], Entry] = {}
        self._before = DeviceCounts()
        self._versions: dict[int, int] = {}
        self._replays = 0
        self._card = CardWatch()
        self._peak = Peak()
        self._breaks = graph_breaks.Record()
        self._ran_again = False
        self._subscriptions: list[tuple[Any, Callable[[Any, Any], None]]] = []

    def __enter__(self) -> LedgerReport:
        self._reset()
        self._peak.open()
        self._before = DeviceCounts.now()
        self._versions = versions.versions(self.namespace)
        self._breaks = graph_breaks.Record.now()
        self._subscribe()
        replays.counter.open()
        self._replays = replays.counter.total
        self._card.lap()
        _open.append(self)
        return self._report

    def __exit__(self, *error: object) -> None:
        if self in _open:
            _open.remove(self)
        replays.counter.close()
        self._unsubscribe()
        after = DeviceCounts.now()
        self._report.card = self._card.lap()
        before, report = self._before, self._report
        report.replays = replays.counter.total - self._replays
        # Computed before graph breaks are added, because these do not use the device.
        report.touched = bool(
            after != before
            or self._entries
            or self._ran_again
            or report.replays
            or versions.written(self._versions, versions.versions(self.namespace))
        )
        breaks = graph_breaks.since(self._breaks)
        report.graph_breaks = len(breaks)
        for each in breaks:
            self._enter(GRAPH_BREAK, each.reason, each.file, each.line)
        for (_, _, file, line, _), entry in self._entries.items():
            entry.where = self.place(file, line) if file else ""
        report.entries = list(self._entries.values())
        counted = after.since(before)
        report.compilations, report.compile_seconds = counted.compilations, counted.compile_seconds
        report.fallbacks = counted.fallbacks
        reported = bool(self._subscriptions) and Ledger._waits_are_reported
        waits = sum(entry.count for entry in report.causes(WAIT))
        report.synchronizations = waits if reported else None
        report.peak = self._peak.close()
        self._subscriptions.clear()

    def _subscribe(self) -> None:
        dispatcher = _dispatcher()
        if dispatcher is None:
            return
        module, instance = dispatcher
        notes = {event: self._noting(kind) for event, kind in _EVENTS.items()}
        notes[_RUN_AGAIN] = self._note_run
        for event, note in notes.items():
            try:
                handle = instance.subscribe(getattr(module.EventId, event), note)
            except TypeError:  # newer releases only deliver events when process() is called
                handle = instance.subscribe(getattr(module.EventId, event))
            self._subscriptions.append((handle, note))

    def _unsubscribe(self) -> None:
        dispatcher = _dispatcher()
        if dispatcher is None:
            return
        _, instance = dispatcher
        for handle, note in self._subscriptions:
            if hasattr(instance, "process"):
                instance.process(handle, note)
            instance.unsubscribe(handle)

    def _note_run(self, *event: object) -> None:
        self._ran_again = True

    def _noting(self, kind: str) -> Callable[[Any, Any], None]:
        def note(timestamp: Any, parameters: Iterable[tuple[str, str]]) -> None:
            facts = dict(parameters)
            if kind == WAIT and facts.get("event") != "host_synchronization":
                return  # an event from another program
            if kind == WAIT:
                Ledger._waits_are_reported = True
            file, line = facts.get("file", ""), int(facts.get("line", 0))
            entry = self._enter(kind, facts.get("name", ""), file, line, facts.get("shapes", ""))
            entry.seconds += float(facts.get("duration", 0.0)) / 1e6

        return note

    def _enter(self, kind: str, name: str, file: str, line: int, shapes: str = "") -> Entry:
        """Increment the count for a cause and return its entry."""
        key = (kind, name, file, line, shapes)
        if key not in self._entries and len(self._entries) >= _MOST_ENTRIES:
            name, shapes = "others", ""
            file, key = "", (kind, name, "", 0, shapes)
        entry = self._entries.setdefault(key, Entry(kind, name, shapes=shapes, file=file))
        entry.count += 1
        return entry


def _dispatcher() -> tuple[Any, Any] | None:
    """Return the dispatcher's module and instance, or None before the bridge is loaded."""
    if not device.bridge_loaded():
        return None
    try:
        from habana_frameworks.torch.utils import event_dispatcher
    except ImportError:
        return None
    return event_dispatcher, event_dispatcher.EventDispatcher.instance()
