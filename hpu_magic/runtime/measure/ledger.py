"""What code cost on the device besides its work: compilations, fallbacks, synchronisations.

The totals are the vendor's metrics. Which line caused what comes from the vendor's event
dispatcher, as far as its events carry a file and a line; without them the totals stand alone.
Graph breaks and operations in place are PyTorch's to tell, and replays are counted here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.peak import Peak
from hpu_magic.runtime.graphs import replays
from hpu_magic.runtime.measure import graph_breaks, versions
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

# The dispatcher's event ids, and the kind of entry each becomes.
_EVENTS = {
    "GRAPH_COMPILATION": COMPILATION,
    "CPU_FALLBACK": FALLBACK,
    "CUSTOM_EVENT": WAIT,
}
_MOST_ENTRIES = 500
# A graph that runs again allocates nothing where it only works in place; this event tells of it.
_RUN_AGAIN = "CACHE_HIT"


# Those whose block runs, the innermost last.
_open: list[ledger] = []


def innermost() -> LedgerReport | None:
    """Return the report of the innermost ledger whose block runs; it is filled as that ends."""
    return _open[-1]._report if _open else None


def _file_and_line(file: str, line: int) -> str:
    return f"{os.path.basename(file)}, line {line}"


class ledger:
    """Keep the ledger of a ``with`` block: ``with ledger() as costs: ...``, then read `costs`.

    The peak statistic of the device's memory starts anew with the block. Blocks may lie within
    one another; each has a ledger and a peak of its own. The same object may keep the ledgers of
    several blocks, one after the other.

    Parameters
    ----------
    place : callable
        Turns a file and a line number into the text that names the line; called at the end.
    namespace : mapping of str to object, optional
        Variables, such as ``globals()``, whose tensors tell by their version whether they were
        written in place; see `hpu_magic.runtime.measure.versions.versions`. In eager mode,
        operations in place leave no other trace.
    """

    # Known once one was reported: a device without such events looks like one without waits.
    _waits_are_reported = False

    def __init__(
        self, place: Place = _file_and_line, namespace: Mapping[str, Any] | None = None
    ) -> None:
        self.place = place
        self.namespace = {} if namespace is None else namespace
        self._start_anew()

    def _start_anew(self) -> None:
        self._report = LedgerReport()
        self._entries: dict[tuple[str, str, str, int, str], Entry] = {}
        self._before = DeviceCounts()
        self._versions: dict[int, int] = {}
        self._replays = 0
        self._peak = Peak()
        self._breaks = graph_breaks.Record()
        self._ran_again = False
        self._subscriptions: list[tuple[Any, Callable[[Any, Any], None]]] = []

    def __enter__(self) -> LedgerReport:
        self._start_anew()
        self._peak.open()
        self._before = DeviceCounts.now()
        self._versions = versions.versions(self.namespace)
        self._breaks = graph_breaks.Record.now()
        self._subscribe()
        replays.counter.open()
        self._replays = replays.counter.total
        _open.append(self)
        return self._report

    def __exit__(self, *error: object) -> None:
        if self in _open:
            _open.remove(self)
        replays.counter.close()
        self._unsubscribe()
        after = DeviceCounts.now()
        before, report = self._before, self._report
        report.replays = replays.counter.total - self._replays
        # Before the graph breaks, which are no work of the device's.
        report.touched = bool(
            after != before
            or self._entries
            or self._ran_again
            or report.replays
            or versions.written(self._versions, versions.versions(self.namespace))
        )
        broken = graph_breaks.since(self._breaks)
        report.graph_breaks = len(broken)
        for one in broken:
            self._enter(GRAPH_BREAK, one.reason, one.file, one.line)
        for (_, _, file, line, _), entry in self._entries.items():
            entry.where = self.place(file, line) if file else ""
        report.entries = list(self._entries.values())
        counted = after.since(before)
        report.compilations, report.compile_seconds = counted.compilations, counted.compile_seconds
        report.fallbacks = counted.fallbacks
        waits = [one.count for one in report.causes(WAIT)]
        told = bool(self._subscriptions) and ledger._waits_are_reported
        report.synchronizations = sum(waits) if told else None
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
            except TypeError:  # newer releases hand events over on request only
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
                return  # somebody's own event
            if kind == WAIT:
                ledger._waits_are_reported = True
            file, line = facts.get("file", ""), int(facts.get("line", 0))
            entry = self._enter(kind, facts.get("name", ""), file, line, facts.get("shapes", ""))
            entry.seconds += float(facts.get("duration", 0.0)) / 1e6

        return note

    def _enter(self, kind: str, name: str, file: str, line: int, shapes: str = "") -> Entry:
        """Count one more of a cause and return its entry."""
        key = (kind, name, file, line, shapes)
        if key not in self._entries and len(self._entries) >= _MOST_ENTRIES:
            name, shapes = "others", ""
            file, key = "", (kind, name, "", 0, shapes)
        entry = self._entries.setdefault(key, Entry(kind, name, shapes=shapes, file=file))
        entry.count += 1
        return entry


def _dispatcher() -> tuple[Any, Any] | None:
    """Return the dispatcher's module and instance; None before the bridge is loaded."""
    if not device.bridge_loaded():
        return None
    try:
        from habana_frameworks.torch.utils import event_dispatcher
    except ImportError:
        return None
    return event_dispatcher, event_dispatcher.EventDispatcher.instance()
