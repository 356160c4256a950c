"""HPU Graphs: record the device operations of a piece of code, and replay them without Python.

A captured graph always reads and writes the tensors that it was captured with. To replay it on new
data, copy the data into the graph's input tensors first. Each replay overwrites the output tensors.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.errors import HPUError, suggestion
from hpu_magic.runtime.device import device
from hpu_magic.runtime.graphs.shapes import Use, described
from hpu_magic.runtime.graphs.wrapping import Wrapped, wrapped_modules
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.present.table import Table

_graphs: dict[str, CapturedGraph] = {}


@dataclass(repr=False)
class CapturedGraph(Report):
    """A captured graph."""

    name: str
    graph: Any  #: the vendor's object
    inputs: dict[str, Any]
    """The input tensors, keyed by the variable whose value a replay copies into them."""
    outputs: dict[str, Any] = field(default_factory=dict)
    """The output tensors, keyed by the variable that the code assigned; each replay overwrites
    them."""
    operations: Counter[str] = field(default_factory=Counter)
    """The recorded operators and their call counts."""
    memory: int = 0  #: device memory still in use after the capture, in bytes
    replays: int = 0  #: number of replays so far

    def title(self) -> str:
        """Return the headline."""
        return f"Graph {self.name} captured on {device.label()}"

    def rows(self) -> Sequence[Row]:
        """Return the operations, memory, inputs and outputs."""
        common = ", ".join(f"{name} x{count}" for name, count in self.operations.most_common(6))
        rest = len(self.operations) - 6
        more = f" and {rest} other operators" if rest > 0 else ""
        return [
            ("operations", f"{self.operations.total()}: {common}{more}"),
            ("memory", units.size(self.memory)),
            ("inputs", _described(self.inputs)),
            ("outputs", _described(self.outputs)),
        ]

    def notes(self) -> Sequence[str]:
        """Return a note on how to replay the graph."""
        return (
            f"%hpu_replay {self.name} runs the graph again and overwrites its outputs in place.",
        )

    def replay(self, n: int = 1, inputs: Mapping[str, Any] | None = None) -> ReplayReport:
        """Copy new inputs, passed by name, and then replay the graph ``n`` times.

        Before any data is copied, raises `HPUError` if ``n`` is less than 1, or if an input does
        not have the captured shape, dtype and device.
        """
        if n < 1:
            raise HPUError(f"-n is {n}: use 1 or more.")
        torch = device.torch_with_hpu()
        changed = {
            name: value for name, value in (inputs or {}).items() if self._is_new(name, value)
        }
        with torch.no_grad():
            for name, value in changed.items():
                self.inputs[name].copy_(value)
        device.synchronize()
        in_use = device.in_use()
        start = time.perf_counter()
        for _ in range(n):
            self.graph.replay()
            self.replays += 1
        device.synchronize()
        seconds = time.perf_counter() - start
        grown = device.in_use() - in_use
        return ReplayReport(self.name, n, seconds, grown, sorted(changed), list(self.outputs))

    def _is_new(self, name: str, value: Any) -> bool:
        """Return whether `value` is new data for an input; raise an error if it does not match."""
        import torch

        if name not in self.inputs:
            known = ", ".join(self.inputs) or "none"
            raise HPUError(f"Graph {self.name} has no input {name!r}: its inputs are {known}.")
        own = self.inputs[name]
        if value is own:
            return False
        if not isinstance(value, torch.Tensor):
            raise HPUError(
                f"Input {name!r} of graph {self.name} is now a {type(value).__name__}: assign a "
                f"tensor of shape {tuple(own.shape)} on {own.device}."
            )
        for what, current, captured in (
            ("shape", tuple(value.shape), tuple(own.shape)),
            ("dtype", value.dtype, own.dtype),
            ("device", value.device, own.device),
        ):
            if current != captured:
                raise HPUError(
                    f"Input {name!r} of graph {self.name} has {what} {current}, but was captured "
                    f"with {what} {captured}: change its {what}, or capture the graph again."
                )
        return True


@dataclass(repr=False)
class ReplayReport(Report):
    """Time and memory of replays."""

    name: str
    replays: int  #: number of replays
    seconds: float  #: total time in seconds, including synchronization
    grown: int  #: change in device memory usage, in bytes
    copied: list[str]  #: inputs into which new data was copied
    outputs: list[str]  #: variables that contain the results

    def title(self) -> str:
        """Return the headline."""
        times = "once" if self.replays == 1 else f"{self.replays} times"
        each = units.duration(self.seconds / self.replays)
        return f"Graph {self.name} replayed {times} on {device.label()}, {each} each"

    def rows(self) -> Sequence[Row]:
        """Return the rate, memory, inputs and outputs."""
        rate = self.replays / self.seconds if self.seconds else 0.0
        rows = [("rate", units.rate(rate, "replays")), ("memory change", units.size(self.grown))]
        if self.copied:
            rows.append(("new data in", ", ".join(self.copied)))
        return [*rows, ("results in", ", ".join(self.outputs) or "no variable")]


@dataclass(repr=False)
class GraphList(Table):
    """The captured graphs of this process."""

    graphs: list[CapturedGraph]  #: in the order in which they were captured
    wrapped: list[Wrapped] = field(default_factory=list)
    """The wrapped modules, which have one graph per input shape."""
    remarks: list[str] = field(default_factory=list)  #: further notes

    def title(self) -> str:
        """Return the headline."""
        of_modules = [use for module in self.wrapped for use in module.watch.uses.values()]
        count = len(self.graphs) + sum(use.graphed for use in of_modules)
        if not count:
            return (
                f"No graphs have been captured on {device.label()}: %%hpu_capture NAME captures a "
                f"cell."
            )
        memory = sum(graph.memory for graph in self.graphs)
        memory += sum(use.memory for use in of_modules)
        graphs = f"{count} graph{'s' if count > 1 else ''}"
        return f"{graphs} on {device.label()}, {units.size(memory)}"

    def columns(self) -> Sequence[str]:
        """Return the columns of the table."""
        return ("graph", "operations", "memory", "replays", "inputs", "outputs")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return one line per captured graph, and one per input shape of each wrapped module."""
        captured = [
            (
                graph.name,
                str(graph.operations.total()),
                units.size(graph.memory),
                str(graph.replays),
                _described(graph.inputs),
                _described(graph.outputs),
            )
            for graph in self.graphs
        ]
        of_modules = [
            (module.watch.name, "", units.size(use.memory), _replays(use), described(kind), "")
            for module in self.wrapped
            for kind, use in module.watch.uses.items()
        ]
        return captured + of_modules

    def notes(self) -> Sequence[str]:
        """Return further notes."""
        return self.remarks


def register(graph: CapturedGraph) -> None:
    """Store a captured graph, replacing any existing graph with the same name."""
    if graph.name in _graphs:
        drop(graph.name)
    _graphs[graph.name] = graph


def find(name: str) -> CapturedGraph:
    """Return the captured graph with this name; raise `HPUError` if there is none."""
    if name not in _graphs:
        fix = suggestion(name, _graphs) or f"capture a cell with %%hpu_capture {name} first."
        raise HPUError(f"Unknown graph {name!r}: {fix}")
    return _graphs[name]


def listed() -> GraphList:
    """Return the captured graphs and the wrapped modules."""
    return GraphList(list(_graphs.values()), wrapped_modules())


def drop(name: str) -> None:
    """Delete a graph and free its memory; raise `HPUError` if no graph has this name."""
    find(name).graph.reset()
    del _graphs[name]


def _replays(use: Use) -> str:
    return str(use.calls - 1) if use.graphed else f"{use.calls} calls without"


def _described(values: Mapping[str, Any]) -> str:
    described = []
    for name, value in values.items():
        shape = getattr(value, "shape", None)
        described.append(name if shape is None else f"{name} {tuple(shape)}")
    return ", ".join(described) or "none"
