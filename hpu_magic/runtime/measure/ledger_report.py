"""Report the causes of a block's overhead as a line, a table and attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from hpu_magic import units
from hpu_magic.errors import HPUError, suggestion
from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.card_time import CardTime
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.present.table import Table

COMPILATION = "compilation"
GRAPH_BREAK = "graph break"
FALLBACK = "cpu fallback"
WAIT = "host synchronization"
# Kinds of entries, in the order of the table.
_KINDS = (COMPILATION, GRAPH_BREAK, FALLBACK, WAIT)
_LONGEST_SHAPES = 48
PARTS = ("graphs", "breaks", "fallbacks", "reads", "replays", "card", "peak")
"""Names of the parts of a report's line."""


def checked_parts(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the parts to show (empty for all); raise `HPUError` if a part is unknown."""
    parts = tuple(names.split(",") if isinstance(names, str) else names or ())
    for name in parts:
        if name not in PARTS:
            fix = suggestion(name, PARTS) or f"its parts are {', '.join(PARTS)}."
            raise HPUError(
                f"The ledger has no part {name!r}: {fix} Type %hpu_ledger on --show graphs,peak, "
                "for example."
            )
    return parts


@dataclass
class Entry:
    """One cause of overhead."""

    kind: str  # one of `_KINDS`
    name: str  # the compiled recipe, PyTorch's reason for the graph break, or the operator
    where: str = ""  # the line that caused the event; empty if unknown
    shapes: str = ""  # the shapes that caused a compilation
    count: int = 0
    seconds: float = 0.0
    file: str = field(default="", compare=False, repr=False)
    """The file that contains the line; empty if unknown."""


@dataclass(repr=False)
class LedgerReport(Table):
    """The device overhead of a cell or a ``with`` block."""

    touched: bool = False
    """Whether the device was used. The device counts as used if it allocated memory, if it compiled
    a graph, ran a cached graph or replayed a captured one, if an operator fell back to the CPU, if
    the host waited for the device, or if a tensor in the ledger's namespace was modified in place.
    In eager mode, in-place operations on other tensors cannot be detected."""
    compilations: int = 0  #: number of compiled graphs
    compile_seconds: float = 0.0  #: total compilation time, in seconds
    graph_breaks: int = 0
    """How often ``torch.compile`` split a graph or skipped a function because it could not compile
    the Python code. Graph breaks are counted when a function is compiled, not on each call."""
    fallbacks: dict[str, int] = field(default_factory=dict)
    """The number of calls that ran on the CPU, by operator."""
    synchronizations: int | None = None
    """How often the host waited for a value. None until the device has reported a wait in this
    process, because some devices do not report waits."""
    replays: int = 0
    """The number of replays of captured graphs, including the graphs of wrapped models, which have
    separate graphs for their forward and backward passes."""
    card: CardTime | None = None
    """Estimated time on a card; None if the clock of the simulated card is off."""
    peak: int = 0  #: peak memory in bytes
    entries: list[Entry] = field(default_factory=list)
    """The causes, in order of first occurrence."""
    show: tuple[str, ...] = ()  #: the parts of the line to show, from `PARTS`; empty for all

    def title(self) -> str:
        """Return the line that is shown below a cell."""
        if not self.touched:
            return f"{device.label()} was not used."
        texts = {
            "graphs": self._compiled(),
            "breaks": self._broken(),
            "fallbacks": self._fallen_back(),
            "reads": self._read(),
            "replays": self._replayed(),
        }
        wanted = self.show or PARTS
        parts = [texts[name] for name in texts if name in wanted and texts[name]]
        if not parts and "graphs" in wanted:
            parts = ["nothing compiled"]
        if "card" in wanted and self.card is not None:
            parts.append(f"card time {self.card.text()}")
        if "peak" in wanted:
            parts.append(f"peak {units.size(self.peak)}")
        return f"{device.label()}: {'; '.join(parts) or 'none of these costs'}"

    def columns(self) -> Sequence[str]:
        """Return the columns of the table."""
        return ("what", "count", "time", "name", "shapes", "where")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return one line per cause, ordered by kind and time."""
        entries = sorted(self.entries, key=lambda entry: (_KINDS.index(entry.kind), -entry.seconds))
        return [
            (
                entry.kind,
                str(entry.count),
                units.duration(entry.seconds) if entry.seconds else "",
                entry.name,
                entry.shapes,
                entry.where,
            )
            for entry in entries
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
        return f"{_counted(self.synchronizations, WAIT)}{shown}"

    def _broken(self) -> str:
        if not self.graph_breaks:
            return ""
        shown = _examples(self.causes(GRAPH_BREAK), "name")
        return f"{_counted(self.graph_breaks, GRAPH_BREAK)}{shown}"

    def _replayed(self) -> str:
        return _counted(self.replays, "graph replay") if self.replays else ""

    def causes(self, kind: str) -> list[Entry]:
        """Return the entries of one kind."""
        return [entry for entry in self.entries if entry.kind == kind]


@dataclass(repr=False)
class LedgerState(Report):
    """Whether the ledger is on."""

    on: bool  # whether a line is added below each subsequent cell
    last: LedgerReport | None  # the report of the last cell that has a ledger line

    def title(self) -> str:
        """Return the headline."""
        return f"The ledger of {device.label()} is {'on' if self.on else 'off'}."

    def rows(self) -> Sequence[Row]:
        """Return the line of the last cell."""
        return [("last cell", self.last.title())] if self.last is not None else ()

    def notes(self) -> Sequence[str]:
        """Return hints on the ledger's commands."""
        notes = ["%hpu_ledger last shows its table."] if self.last is not None else []
        if self.on:
            return [*notes, "%hpu_ledger off switches it off."]
        return [*notes, "%hpu_ledger on shows the device overhead below each subsequent cell."]


class LedgerLine:
    """A report shown as one line; in a notebook, clicking it opens the table."""

    def __init__(self, report: LedgerReport) -> None:
        self.report = report

    def __repr__(self) -> str:
        return self.report.title()

    def _repr_html_(self) -> str:
        line = escape(self.report.title())
        body = self.report.html_body()
        # The line is less prominent than the cell's output, but legible in both themes.
        style = "opacity:.85;font-size:smaller"
        if not body:
            return f'<div style="{style}">{line}</div>'
        return f'<details style="{style}"><summary>{line}</summary>{body}</details>'


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _differing(causes: list[Entry]) -> str:
    """Return the shapes that distinguish several compilations, such as ``[5], [9], [14]``."""
    shapes = [re.findall(r"\[[^\]]*\]", cause.shapes) for cause in causes]
    if len(shapes) < 2 or len(set(map(len, shapes))) != 1:
        return ""
    places = [number for number, same in enumerate(zip(*shapes, strict=True)) if len(set(same)) > 1]
    return ", ".join(" x ".join(each[place] for place in places) for each in shapes if places)


def _examples(causes: list[Entry], attribute: str, summary: str = "") -> str:
    """Return the first cause and the number of other causes, or a summary, in parentheses."""
    if not causes:
        return ""
    described: dict[tuple[str, str], None] = {}
    for cause in causes:
        shown = summary or (getattr(cause, attribute) if attribute else "")
        if len(shown) > _LONGEST_SHAPES:
            shown = f"{shown[:_LONGEST_SHAPES]}…"
        described[shown, cause.where] = None
    lines_with_shapes = {where for shown, where in described if shown}
    first, *others = (
        ", ".join(filter(None, (shown, where)))
        for shown, where in described
        if shown or where not in lines_with_shapes
    )
    if not first:
        return ""
    return f" ({first}; and {len(others)} more)" if others and not summary else f" ({first})"
