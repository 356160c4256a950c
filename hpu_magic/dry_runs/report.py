"""The result of a dry run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpu_magic import units
from hpu_magic.advice.report import Advice
from hpu_magic.dry_runs.lines import MOST_LINES, Line, Shortage, described_shortage, line_rows
from hpu_magic.dry_runs.page import page
from hpu_magic.dry_runs.picture import picture
from hpu_magic.dry_runs.rank_result import (
    EVENTS,
    RankResult,
    error_of,
    is_out_of_memory,
    merged,
)
from hpu_magic.dry_runs.step_time import StepTime
from hpu_magic.dry_runs.suggestions import advice
from hpu_magic.estimates.pictures import memory_plot
from hpu_magic.estimates.tree import tree_html
from hpu_magic.runtime.present.report import Report, Row

_CUDA = "If this is CUDA code, set PT_HPU_GPU_MIGRATION=1 to run it unchanged"
_LIGHTNING = "Lightning uses HPUs if the script imports hpu_magic.lightning"


@dataclass(frozen=True, repr=False)
class DryRun(Report):
    """The memory, steps and events of a script on a simulated card that computes nothing.

    Attributes
    ----------
    script : str
        Path of the script.
    status : int
        Exit status of the script.
    card : str
        Generation of the card.
    cards : int
        Number of ranks that the script sees.
    ranks : list of RankResult
        The ranks that ran and represent all ranks: the first one, and those with which it exchanged
        messages.
    rank : int
        The rank that failed, or else the one with the highest peak. The other fields are those of
        this rank, except that `time` is that of the slowest rank, and that the events of all ranks
        are counted.
    mode : str
        ``"eager"`` or ``"lazy"``.
    capacity : int
        Bytes that tensors can use.
    peak : int
        Highest number of bytes in use.
    composition : dict
        Bytes at the peak by kind of tensor.
    memory_course : list of int
        Bytes in use during the last step, or the run if no step was complete, in equal numbers of
        allocations and releases.
    memory_lines : list of Line
        Lines with the most memory at the peak.
    shortage : Shortage or None
        The last allocation that did not fit.
    out_of_memory : bool
        Whether the script ended because the card was full.
    error : str or None
        The exception that ended the script.
    error_line : Line or None
        The line of the script that raised it.
    steps : int
        Number of steps that used the card: optimizer steps, or backward passes in a script without
        an optimizer of ``torch.optim``.
    optimizer : str
        The class of the optimizer that ran last; empty if none ran.
    cycle : int or None
        Number of steps that repeat, or None if the steps do not repeat.
    requested : int or None
        Number of steps that were requested.
    time : StepTime or None
        Estimated time of a step on the card; None if the script did not use the card, or it failed
        before the first step was complete.
    advice : Advice or None
        Suggestions for the parts of the step that take most of its time.
    stopped : bool
        Whether the run ended before the script's end.
    graphs, graph_breaks : int
        Number of compiled graphs, and of graph breaks of `torch.compile`.
    unused_values : list of str
        Supplied stand-ins whose lines read no stand-in.
    uses_lightning : bool
        Whether the script imported Lightning without hpu_magic.lightning.
    imbalance : float
        Requested tokens of this rank's experts relative to the mean.
    is_unbalanced : bool
        Whether a router selected this rank's experts more often than others.
    host_reads, fallbacks, stand_ins, assumed_shapes, assumed_indices : list of Line
        Lines that read device memory on the host, ran operators on the CPU, read values that were
        not computed, used sizes that depend on such values, and sorted or selected such values.
    """

    script: str
    status: int
    card: str
    cards: int
    ranks: list[RankResult]
    rank: int
    mode: str
    capacity: int
    peak: int
    composition: dict[str, int]
    memory_course: list[int]
    memory_lines: list[Line]
    shortage: Shortage | None
    out_of_memory: bool
    error: str | None
    error_line: Line | None
    steps: int
    optimizer: str
    cycle: int | None
    requested: int | None
    time: StepTime | None
    advice: Advice | None
    stopped: bool
    graphs: int
    graph_breaks: int
    unused_values: list[str]
    host_reads: list[Line]
    fallbacks: list[Line]
    stand_ins: list[Line]
    assumed_shapes: list[Line]
    assumed_indices: list[Line]
    uses_lightning: bool
    imbalance: float
    is_unbalanced: bool

    @property
    def step_seconds(self) -> float | None:
        """Estimated time of a step on the card; None without an estimate or a step."""
        return None if self.time is None or self.time.whole_run else self.time.seconds

    @classmethod
    def from_records(cls, script: str, cards: int, records: dict[int, dict[str, Any]]) -> DryRun:
        """Create the result from the records of the ranks that ran."""
        ranks = [RankResult.from_record(*each) for each in records.items()]
        record = merged(records)
        ended, failure = record["ended"], record["failure"]
        lines: dict[str, Any] = {
            name: [Line.from_record(each) for each in record[name]]
            for name in ("memory_lines", *EVENTS)
        }
        same = (
            *("rank", "card", "mode", "capacity", "peak", "composition", "memory_course", "steps"),
            *("cycle", "requested", "optimizer", "graphs", "graph_breaks", "unused_values"),
            *("status", "uses_lightning"),
            *("imbalance", "is_unbalanced"),
        )
        time = found = None
        # If no step was completed, only a part of the run was measured before the error.
        is_whole = record["steps"] or ended["how"] != "error"
        if record["time"] is not None and record["peak"] and is_whole:
            time = StepTime.from_record(record["card"], record["time"])
            found = advice(
                Path(script).name,
                record["card"],
                _mode(record),
                record["optimizer"],
                time,
                lines["fallbacks"],
                lines["host_reads"],
            )
        return cls(
            script=script,
            cards=max(cards, record["ranks"]),
            ranks=ranks,
            shortage=failure and Shortage(**{**failure, "line": Line.from_record(failure["line"])}),
            out_of_memory=is_out_of_memory(record),
            error=error_of(record),
            error_line=Line(**ended["line"]) if ended["line"]["file"] else None,
            stopped=ended["how"] == "stopped",
            **{name: record[name] for name in same},
            **lines,
            time=time,
            advice=found,
        )

    @property
    def was_interrupted(self) -> bool:
        """Whether an interrupt ended the run."""
        return self.error is not None and self.error.startswith("KeyboardInterrupt")

    def title(self) -> str:
        """Return whether the script fits on the card, or how it ended."""
        result = "it fits"
        if self.out_of_memory:
            result = "it runs out of memory"
        elif self.was_interrupted:
            result = "it was interrupted"
        elif self.error is not None:
            result = "it ended with an error"
        elif self.status:
            result = f"it ended with status {self.status}"
        elif not self.peak:
            result = "it did not use the card"
        cards = f"{self.cards} simulated {self.card}"
        return f"Dry run of {self.script} on {cards} ({self.mode}): {result}."

    def rows(self) -> list[Row]:
        """Return memory, steps and events."""
        rows: list[Row] = []
        if self.capacity:  # 0 if the card was not used
            where = f" on rank {self.rank}" if len(self.ranks) > 1 else ""
            rows.append(("peak memory", units.usage(self.peak, self.capacity) + where))
        rows += [(f"  {kind}", units.size(each)) for kind, each in self.composition.items()]
        rows += line_rows("lines at the peak", self.memory_lines)
        if self.shortage is not None and self.out_of_memory:
            rows += [("out of memory", described_shortage(self.shortage))]
        if len(self.ranks) > 1:
            rows += [each.row(self.capacity) for each in self.ranks]
        rows += [("steps" if self._counts_passes else "optimizer steps", f"{self.steps}")]
        if self.time is not None:
            rows += self.time.rows()
            if self.requested is not None and not self.time.whole_run:
                rows += [(f"{self.requested:,} steps", self.time.duration(self.requested))]
        rows += [("compiled graphs", f"{self.graphs}")]
        if self.graph_breaks:
            rows += [("graph breaks", f"{self.graph_breaks}")]
        rows += line_rows("CPU fallbacks", self.fallbacks)
        rows += line_rows("host reads", self.host_reads)
        rows += line_rows("stand-ins read", self.stand_ins)
        rows += line_rows("assumed sizes", self.assumed_shapes)
        rows += line_rows("assumed indices", self.assumed_indices)
        return rows

    def notes(self) -> list[str]:
        """Return what was assumed."""
        notes = []
        if self.cards > 1:
            notes.append(
                f"{self._who_ran()} all {self.cards} ranks. Work that only rank 0 does, such "
                "as logging, is included. Collectives return tensors of the right sizes; integers "
                "have the values of "
                + ("rank 0." if len(self.ranks) == 1 else "the rank that runs.")
            )
        if self.stopped and self.cycle is not None:
            which = "The last 3 steps are" if self.cycle == 1 else f"Every {self.cycle} steps are"
            notes.append(
                f"{which} equal in operations and memory, so the run ended after step "
                f"{self.steps}; --whole also runs the rest of the script."
            )
        elif self.stopped and self.requested is not None:
            notes.append(f"The run ended after {self.steps} steps, as requested.")
        elif self.stopped and not self.steps:
            notes.append("The run ended after 30 seconds of steps that did not use the card.")
        elif self.stopped:
            notes.append(
                "The steps differ in operations or memory, for example in the lengths of texts, so "
                f"the run ended after {self.steps} of them, and the time of a step is the mean of "
                "the last ones. Later steps may need more memory: --steps N or --whole runs them."
            )
        if self._counts_passes:
            notes.append("The script uses no optimizer of torch.optim: backward passes end steps.")
        if self.stand_ins:
            notes.append(
                "Values that were not computed are stand-ins: usually 0 for integers, otherwise "
                "1.0. --value FILE:LINE=NUMBER sets the values that a line reads."
            )
        if self.assumed_shapes:
            notes.append(
                "Sizes that depend on such values are assumed: masks select all elements, or an "
                "equal share for each class of one_hot, and all elements are distinct."
            )
        if self.fallbacks and self.time is not None:
            notes.append(
                "The time includes the copies for CPU fallbacks, but not the work on the CPU."
            )
        operators = {each.what for each in self.assumed_indices}
        if "aten::topk" in operators:
            card = f", but those of rank 0 {self.imbalance:g} times as often as the mean"
            notes.append(
                "topk is assumed to select all indices, such as experts, equally often"
                f"{card if self.is_unbalanced else ''}."
            )
        if "aten::sort" in operators:
            notes.append("The operands of sort are assumed to be sorted.")
        return notes + ([] if self.time is None else self.time.notes())

    @property
    def _counts_passes(self) -> bool:
        return self.steps > 0 and not self.optimizer

    def _who_ran(self) -> str:
        if len(self.ranks) == 1:
            return "Rank 0 ran and represents"
        *others, last = [str(each.rank) for each in self.ranks]
        return f"Ranks {', '.join(others)} and {last} exchanged messages, and represent"

    def text_body(self) -> list[str]:
        """Return the rows, and the suggestions with their code."""
        found = [] if self.advice is None else self.advice.text_body()
        return super().text_body() + (["  advice", *found] if found else [])

    def html_table(self) -> str:
        """Return the table, and the suggestions with their code as HTML."""
        return super().html_table() + ("" if self.advice is None else self.advice.html_table())

    def page(self) -> str:
        """Return the result as a complete HTML page."""
        return page(self.title(), self._repr_html_())

    def html_body(self) -> str:
        """Return the picture, the table, the notes and the tree of modules as HTML."""
        short = self.shortage if self.out_of_memory else None
        needed = 0 if short is None else short.in_use + short.bytes
        parts = [super().html_body()]
        if self.composition:
            phases = None if self.time is None else self.time.phases
            unit = "run" if self.time is not None and self.time.whole_run else "step"
            parts.insert(0, picture(self.composition, self.capacity, needed, phases, unit))
        if self.composition and self.memory_course:
            ends = [float(i + 1) for i in range(len(self.memory_course))]
            what = "last step" if self.steps else "run"
            when = f"during the {what}, after each allocation and release"
            parts.insert(1, memory_plot(when, self.memory_course, ends, self.capacity))
        if self.time is not None and self.time.modules.seconds:
            parts.append(tree_html(self.time.modules))
        return "".join(parts)

    def warnings(self) -> list[str]:
        """Return why the script ended or did not use the card, and options that had no effect."""
        warnings = []
        if self.error is not None and not self.out_of_memory and not self.was_interrupted:
            warnings.append(self._error())
        elif not self.peak:
            change = f"{_CUDA}; otherwise, move the model and its inputs to hpu"
            warnings.append(
                f"No tensor was on the device hpu. {_LIGHTNING if self.uses_lightning else change}."
            )
        read = ", ".join(each.innermost for each in self.stand_ins[:MOST_LINES])
        for each in self.unused_values:
            warnings.append(
                f"--value {each} had no effect, because this line did not read a stand-in; "
                + (f"these lines did: {read}." if read else "no line did.")
            )
        if self.imbalance > 1 and not self.is_unbalanced:
            warnings.append(
                f"imbalance={self.imbalance:g} had no effect: it applies to topk of a "
                f"number of experts that is a multiple of {self.cards}."
            )
        return warnings

    def _error(self) -> str:
        name, _, message = (self.error or "").partition(":")
        line = next(filter(None, map(str.strip, message.splitlines())), "")
        error = f"{name}: {line}" if line else name
        where = f" in {self.error_line.place}" if self.error_line else ""
        where = f" on rank {self.rank}{where}" if len(self.ranks) > 1 else where
        text = f"It ended{where} with {error.rstrip('.')}."
        if self.uses_lightning and "CUDA" in error:
            text += f" {_LIGHTNING}, also without PT_HPU_GPU_MIGRATION."
        elif "compiled with CUDA" in error:
            text += f" {_CUDA}."
        if self.stand_ins:
            text += (
                " If a stand-in caused this error, pass the value that its line should read: "
                f"--value {self.stand_ins[0].innermost}=NUMBER."
            )
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as numbers, strings, lists and dicts."""
        return dataclasses.asdict(self)


def _mode(record: dict[str, Any]) -> str:
    """Return the mode in the notation of estimates; only compiled code has graphs in eager mode."""
    return "compile" if record["mode"] == "eager" and record["graphs"] else record["mode"]
