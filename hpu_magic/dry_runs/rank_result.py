"""The results of the ranks of a dry run, and the record that contains all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpu_magic import units
from hpu_magic.runtime.present.report import Row

EVENTS = ("host_reads", "fallbacks", "stand_ins", "assumed_shapes", "assumed_indices")
"""Lists of lines with numbers of events."""


@dataclass(frozen=True)
class RankResult:
    """The result of one rank.

    Attributes
    ----------
    rank : int
        Number of the rank.
    peak : int
        Highest number of bytes in use.
    out_of_memory : bool
        Whether the rank ended because its card was full.
    error : str or None
        The exception that ended the rank.
    steps : int
        Number of optimizer steps that ran.
    step_seconds : float or None
        Estimated time of a step on the card; None without an estimate or a step.
    graphs, graph_breaks : int
        Number of compiled graphs, and of graph breaks of `torch.compile`.
    host_reads : int
        How often the host read device memory.
    """

    rank: int
    peak: int
    out_of_memory: bool
    error: str | None
    steps: int
    step_seconds: float | None
    graphs: int
    graph_breaks: int
    host_reads: int

    @classmethod
    def from_record(cls, rank: int, record: dict[str, Any]) -> RankResult:
        """Create the result from the record of a rank."""
        return cls(
            rank=rank,
            out_of_memory=is_out_of_memory(record),
            error=error_of(record),
            step_seconds=_step_seconds(record),
            host_reads=sum(line["count"] for line in record["host_reads"]),
            **{name: record[name] for name in ("peak", "steps", "graphs", "graph_breaks")},
        )

    def row(self, capacity: int) -> Row:
        """Return the peak memory, and the time of a step."""
        text = units.usage(self.peak, capacity)
        if self.out_of_memory:
            text += ", out of memory"
        if self.step_seconds is not None:
            text += f", {units.duration(self.step_seconds)} per step"
        return f"  rank {self.rank}", text


def error_of(record: dict[str, Any]) -> str | None:
    """Return the exception that ended a rank, or None."""
    ended = record["ended"]
    return f"{ended['type']}: {ended['message']}" if ended["how"] == "error" else None


def is_out_of_memory(record: dict[str, Any]) -> bool:
    """Return whether a rank ended because its card was full."""
    message = record["ended"].get("message", "")
    return record["failure"] is not None and "Allocation failed for size" in message


def merged(records: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Return the record of the rank that failed first, or else of the one with the highest peak.

    The record contains the time of the slowest rank and the events of all ranks.
    """
    failed = [rank for rank, each in records.items() if each["ended"]["how"] == "error"]
    chosen = failed[0] if failed else max(records, key=lambda rank: int(records[rank]["peak"]))
    slowest = max(records.values(), key=lambda each: _step_seconds(each) or 0.0)
    every = list(records.values())
    return {
        **records[chosen],
        "rank": chosen,
        "status": next((each["status"] for each in every if each["status"]), 0),
        "ranks": max(each["ranks"] for each in every),
        "time": _time(slowest if _step_seconds(slowest) else records[chosen], every),
        "unused_values": [
            value
            for value in every[0]["unused_values"]
            if all(value in each["unused_values"] for each in every)
        ],
        "is_unbalanced": any(each["is_unbalanced"] for each in every),
        **{name: _added([line for each in every for line in each[name]]) for name in EVENTS},
    }


def _time(record: dict[str, Any], every: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return a rank's time, with the data of the first rank, which has the loader.

    The ranks that exchange messages process the same samples.
    """
    if record["time"] is None or len(every) == 1 or every[0]["time"] is None:
        return record["time"]
    data = dict(every[0]["time"]["data"])
    if not data["ranks_are_known"]:
        data["ranks"] = max(1, data["ranks"] // len(every))
        data["ranks_are_known"] = data["ranks"] == 1
    return {**record["time"], "data": data}


def _step_seconds(record: dict[str, Any]) -> float | None:
    time = record["time"]
    return None if time is None or time["whole_run"] else time["seconds"]


def _added(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines with the sum of their events, most events first."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines:
        library = line.get("library") or {}
        inner = (library.get("file"), library.get("line"))
        key = (line["file"], line["line"], line["what"], *inner)
        count = found[key]["count"] if key in found else 0
        found[key] = {**line, "count": count + line["count"]}
    return sorted(found.values(), key=lambda line: -line["count"])
