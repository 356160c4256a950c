"""What the ledger tells of a block: causes of cost, as a line, a table and attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from hpu_magic import units
from hpu_magic.runtime.device import device
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.present.table import Table

COMPILATION = "compilation"
GRAPH_BREAK = "graph break"
FALLBACK = "cpu fallback"
WAIT = "host synchronisation"
# As the table shows them.
_KINDS = (COMPILATION, GRAPH_BREAK, FALLBACK, WAIT)
_LONGEST_SHAPES = 48


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
    file : str
        That of the line; empty where it is not known.
    """

    kind: str
    name: str
    where: str = ""
    shapes: str = ""
    count: int = 0
    seconds: float = 0.0
    file: str = field(default="", compare=False, repr=False)


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
        causes = self.causes(COMPILATION)
        time = units.duration(self.compile_seconds)
        shown = _examples(causes, "shapes", _differing(causes))
        return f"{_counted(self.compilations, 'graph')} compiled in {time}{shown}"

    def _fallen_back(self) -> str:
        total = sum(self.fallbacks.values())
        if not total:
            return ""
        causes = self.causes(FALLBACK)
        shown = _examples(causes, "name") or f" ({', '.join(self.fallbacks)})"
        return f"{_counted(total, 'CPU fallback')}{shown}"

    def _read(self) -> str:
        if not self.synchronizations:
            return ""
        shown = _examples(self.causes(WAIT), "")
        return f"{_counted(self.synchronizations, 'host synchronisation')}{shown}"

    def _broken(self) -> str:
        if not self.graph_breaks:
            return ""
        shown = _examples(self.causes(GRAPH_BREAK), "name")
        return f"{_counted(self.graph_breaks, 'graph break')}{shown}"

    def _replayed(self) -> str:
        return _counted(self.replays, "graph replay") if self.replays else ""

    def causes(self, kind: str) -> list[Entry]:
        """Return the entries of one kind."""
        return [one for one in self.entries if one.kind == kind]


@dataclass(repr=False)
class LedgerState(Report):
    """Whether the ledger is on.

    Attributes
    ----------
    on : bool
        Later cells get a line.
    last : LedgerReport or None
        Of the last cell that got one.
    """

    on: bool
    last: LedgerReport | None

    def title(self) -> str:
        """Return the headline."""
        return f"The ledger of {device.label()} is {'on' if self.on else 'off'}."

    def rows(self) -> Sequence[Row]:
        """Return the line of the last cell that got one."""
        return [("last cell", self.last.title())] if self.last is not None else ()

    def notes(self) -> Sequence[str]:
        """Say what to type."""
        notes = ["%hpu_ledger last shows its table."] if self.last is not None else []
        if self.on:
            return [*notes, "%hpu_ledger off ends it."]
        return [*notes, "%hpu_ledger on says under each later cell what it cost on the device."]


class LedgerLine:
    """A report as one quiet line; in a notebook, a click opens the table."""

    def __init__(self, report: LedgerReport) -> None:
        self.report = report

    def __repr__(self) -> str:
        return self.report.title()

    def _repr_html_(self) -> str:
        line = escape(self.report.title())
        body = self.report.html_body()
        # Fainter than the cell's own output, and still legible on either theme.
        style = "opacity:.85;font-size:smaller"
        if not body:
            return f'<div style="{style}">{line}</div>'
        return f'<details style="{style}"><summary>{line}</summary>{body}</details>'


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
