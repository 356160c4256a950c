"""What code cost on the device besides its work: compilations, fallbacks, synchronisations.

The totals are the vendor's metrics. Which line caused what comes from the vendor's event
dispatcher, as far as its events carry a file and a line; without them the totals stand alone.
Graph breaks and operations in place are PyTorch's to tell, and replays are counted here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from hpu_magic.runtime import device, graph_breaks, replays, units, versions
from hpu_magic.runtime.peak import Peak
from hpu_magic.runtime.table import Table

Place = Callable[[str, int], str]

# The dispatcher's event ids, and the kind of entry each becomes.
_EVENTS = {
    "GRAPH_COMPILATION": "compilation",
    "CPU_FALLBACK": "cpu fallback",
    "CUSTOM_EVENT": "host synchronisation",
}
_GRAPH_BREAK = "graph break"
# As the table shows them.
_KINDS = ("compilation", _GRAPH_BREAK, "cpu fallback", "host synchronisation")
_MOST_ENTRIES = 500
_LONGEST_SHAPES = 48
# A graph that runs again allocates nothing where it only works in place; this event tells of it.
_RUN_AGAIN = "CACHE_HIT"
# Frees are left out: Python's garbage collector frees during any cell.
_ACTIVITY = ("NumAllocs", "TotalSystemAllocs")


def _file_and_line(file: str, line: int) -> str:
    return f"{os.path.basename(file)}, line {line}"


@dataclass
class Entry:
    """One cause of cost.

    Attributes
    ----------
    kind : {"compilation", "graph break", "cpu fallback", "host synchronisation"}
        What happened.
    name : str
        The compiled recipe, PyTorch's reason for a graph break, or the operator.
    where : str
        The line that caused it; empty where it is not known.
    shapes : str
        The shapes that caused a compilation.
    count : int
        How often.
    seconds : float
        How long in all.
    """

    kind: str
    name: str
    where: str = ""
    shapes: str = ""
    count: int = 0
    seconds: float = 0.0


@dataclass(repr=False)
class LedgerReport(Table):
    """What a cell or a ``with`` block cost on the device.

    Attributes
    ----------
    touched : bool
        The device was used, as far as can be told: it allocated memory, compiled a graph, ran
        one from its cache or replayed a captured one, fell back or was waited for, or a tensor
        in the ledger's namespace was written in place. In eager mode, operations in place on
        other tensors leave no trace.
    compilations : int
        Graphs compiled.
    compile_seconds : float
        Seconds spent on compiling them.
    graph_breaks : int
        How often ``torch.compile`` cut a graph in two or gave a function up, because it met
        Python that it cannot compile. Counted when a function is compiled, not at each call.
    fallbacks : dict of str to int
        Calls that ran on the CPU instead, by operator.
    synchronizations : int or None
        How often the host waited for a value; None as long as the device has not reported any
        such wait in this process, since it may not report them at all.
    replays : int
        Captured graphs run again, among them those of wrapped models, where forward and
        backward are a graph each.
    peak : int
        Most bytes in use.
    entries : list of Entry
        The causes, in the order in which they first appeared.
    """

    touched: bool = False
    compilations: int = 0
    compile_seconds: float = 0.0
    graph_breaks: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)
    synchronizations: int | None = None
    replays: int = 0
    peak: int = 0
    entries: list[Entry] = field(default_factory=list)

    def title(self) -> str:
        """Return the line that is shown under a cell."""
        if not self.touched:
            return f"{device.label()} was not used."
        parts = (
            self._compiled(),
            self._broken(),
            self._fallen_back(),
            self._read(),
            self._replayed(),
        )
        shown = "; ".join(part for part in parts if part) or "nothing compiled"
        return f"{device.label()}: {shown}; peak {units.size(self.peak)}"

    def columns(self) -> Sequence[str]:
        """Return the columns of the table."""
        return ("what", "count", "time", "name", "shapes", "where")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return a line for each cause, the costliest first within its kind."""
        entries = sorted(self.entries, key=lambda one: (_KINDS.index(one.kind), -one.seconds))
        return [
            (
                one.kind,
                str(one.count),
                units.duration(one.seconds) if one.seconds else "",
                one.name,
                one.shapes,
                one.where,
            )
            for one in entries
        ]

    def _compiled(self) -> str:
        if not self.compilations:
            return ""
        causes = self._causes("compilation")
        time = units.duration(self.compile_seconds)
        shown = _examples(causes, "shapes", _differing(causes))
        return f"{_counted(self.compilations, 'graph')} compiled in {time}{shown}"

    def _fallen_back(self) -> str:
        total = sum(self.fallbacks.values())
        if not total:
            return ""
        causes = self._causes("cpu fallback")
        shown = _examples(causes, "name") or f" ({', '.join(self.fallbacks)})"
        return f"{_counted(total, 'CPU fallback')}{shown}"

    def _read(self) -> str:
        if not self.synchronizations:
            return ""
        shown = _examples(self._causes("host synchronisation"), "")
        return f"{_counted(self.synchronizations, 'host synchronisation')}{shown}"

    def _broken(self) -> str:
        if not self.graph_breaks:
            return ""
        shown = _examples(self._causes(_GRAPH_BREAK), "name")
        return f"{_counted(self.graph_breaks, 'graph break')}{shown}"

    def _replayed(self) -> str:
        return _counted(self.replays, "graph replay") if self.replays else ""

    def _causes(self, kind: str) -> list[Entry]:
        return [one for one in self.entries if one.kind == kind]


class LedgerLine:
    """A report as one quiet line; in a notebook, a click opens the table."""

    def __init__(self, report: LedgerReport) -> None:
        self.report = report

    def __repr__(self) -> str:
        return self.report.title()

    def _repr_html_(self) -> str:
        line = escape(self.report.title())
        body = self.report.html_body()
        style = "opacity:.65;font-size:smaller"
        if not body:
            return f'<div style="{style}">{line}</div>'
        return f'<details style="{style}"><summary>{line}</summary>{body}</details>'


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
        written in place; see `hpu_magic.runtime.versions.versions`. In eager mode, operations
        in place leave no other trace.
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
        self._before: _Totals = _Totals()
        self._versions: dict[int, int] = {}
        self._replays = 0
        self._peak = Peak()
        self._breaks = graph_breaks.Record()
        self._ran_again = False
        self._subscriptions: list[tuple[Any, Callable[[Any, Any], None]]] = []

    def __enter__(self) -> LedgerReport:
        self._start_anew()
        self._peak.open()
        self._before = _Totals.now()
        self._versions = versions.versions(self.namespace)
        self._breaks = graph_breaks.Record.now()
        self._subscribe()
        replays.counter.open()
        self._replays = replays.counter.total
        return self._report

    def __exit__(self, *error: object) -> None:
        replays.counter.close()
        self._unsubscribe()
        after = _Totals.now()
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
            self._enter(_GRAPH_BREAK, one.reason, one.file, one.line)
        for (_, _, file, line, _), entry in self._entries.items():
            entry.where = self.place(file, line) if file else ""
        report.entries = list(self._entries.values())
        report.compilations = int(_since(before.compilations, after.compilations))
        report.compile_seconds = _since(before.microseconds, after.microseconds) / 1e6
        fallbacks = {
            name: int(_since(before.fallbacks.get(name, 0), count))
            for name, count in after.fallbacks.items()
        }
        report.fallbacks = {name: count for name, count in fallbacks.items() if count}
        waits = [one.count for one in report._causes("host synchronisation")]
        counted = bool(self._subscriptions) and ledger._waits_are_reported
        report.synchronizations = sum(waits) if counted else None
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
            if kind == "host synchronisation" and facts.get("event") != "host_synchronization":
                return  # somebody's own event
            if kind == "host synchronisation":
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
            key = (kind, name, "", 0, shapes)
        entry = self._entries.setdefault(key, Entry(kind, name, shapes=shapes))
        entry.count += 1
        return entry


@dataclass
class _Totals:
    """What the device has counted since the process began; compared before and after."""

    compilations: int = 0
    microseconds: float = 0.0
    fallbacks: dict[str, int] = field(default_factory=dict)
    activity: tuple[int, ...] = ()

    @classmethod
    def now(cls) -> _Totals:
        if not device.taken():
            return cls()
        compiled, fallen = _statistics("graph_compilation"), _statistics("cpu_fallback")
        stats = sys.modules["torch"].hpu.memory_stats()
        return cls(
            int(compiled.get("TotalNumber", 0)),
            float(compiled.get("TotalTime", 0.0)),
            dict(fallen.get("FallbackOps", {})),
            tuple(stats.get(name, 0) for name in _ACTIVITY),
        )


def _since(before: float, after: float) -> float:
    """Return the growth of a count, which somebody may have reset to zero in between."""
    return after - before if after >= before else after


def _statistics(name: str) -> dict[str, Any]:
    try:
        from habana_frameworks.torch.hpu.metrics import metric_global
    except ImportError:
        return {}
    metric = metric_global(name)
    return dict(metric.stats()) if metric is not None else {}


def _dispatcher() -> tuple[Any, Any] | None:
    """Return the dispatcher's module and instance; None before the bridge is loaded."""
    if not device.bridge_loaded():
        return None
    try:
        from habana_frameworks.torch.utils import event_dispatcher
    except ImportError:
        return None
    return event_dispatcher, event_dispatcher.EventDispatcher.instance()


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _differing(causes: list[Entry]) -> str:
    """Return the shapes in which several compilations differ, such as ``[5], [9], [14]``."""
    shapes = [re.findall(r"\[[^\]]*\]", one.shapes) for one in causes]
    if len(shapes) < 2 or len({len(one) for one in shapes}) != 1:
        return ""
    places = [number for number, same in enumerate(zip(*shapes, strict=True)) if len(set(same)) > 1]
    return ", ".join(" x ".join(one[place] for place in places) for one in shapes) if places else ""


def _examples(causes: list[Entry], attribute: str, summary: str = "") -> str:
    """Return the first cause in brackets and how many more there are, or their summary."""
    if not causes:
        return ""
    shown = summary or (getattr(causes[0], attribute) if attribute else "")
    if len(shown) > _LONGEST_SHAPES:
        shown = f"{shown[:_LONGEST_SHAPES]}…"
    text = ", ".join(part for part in (shown, causes[0].where) if part)
    more = 0 if summary else len(causes) - 1
    if not text:
        return ""
    return f" ({text}; and {more} more)" if more else f" ({text})"
