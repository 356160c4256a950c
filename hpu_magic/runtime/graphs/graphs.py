"""HPU Graphs: record what a piece of code does on the device, and replay it without Python.

A captured graph reads and writes the tensors of its capture. To replay it on new data, the data
is copied into those tensors first; what it computes is found in them afterwards.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.errors import RefusedError, suggestion
from hpu_magic.runtime.device import device
from hpu_magic.runtime.graphs.shapes import Use, described
from hpu_magic.runtime.graphs.wrapping import Wrapped, wrapped_modules
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.present.table import Table

_graphs: dict[str, CapturedGraph] = {}


@dataclass(repr=False)
class CapturedGraph(Report):
    """A captured graph.

    Attributes
    ----------
    name : str
        What it is called.
    graph : torch.hpu.HPUGraph
        The graph itself.
    inputs : dict of str to Tensor
        The tensors it reads, by the variable that is copied into each before a replay.
    outputs : dict of str to object
        What the code assigned: the graph's own tensors, overwritten by each replay.
    operations : Counter of str
        Operators recorded, with the number of times.
    memory : int
        Bytes that the capture left in use on the device.
    replays : int
        Replays so far.
    """

    name: str
    graph: Any
    inputs: dict[str, Any]
    outputs: dict[str, Any] = field(default_factory=dict)
    operations: Counter[str] = field(default_factory=Counter)
    memory: int = 0
    replays: int = 0

    def title(self) -> str:
        """Return the headline."""
        return f"Graph {self.name} captured on {device.label()}"

    def rows(self) -> Sequence[Row]:
        """Return operations, memory, inputs and outputs."""
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
        """Say how to replay it."""
        return (f"%hpu_replay {self.name} runs it again; the outputs are overwritten in place.",)

    def replay(self, n: int = 1, inputs: Mapping[str, Any] | None = None) -> ReplayReport:
        """Copy new inputs in and replay `n` times.

        Parameters
        ----------
        n : int
            Number of replays, 1 or more.
        inputs : mapping of str to Tensor
            New data by the name of the input; an input that is left out keeps its data.

        Raises
        ------
        RefusedError
            `n` is below 1, or an input is not of the captured shape, dtype and device. Nothing
            was copied then.
        """
        if n < 1:
            raise RefusedError(f"-n is {n}: give 1 or more replays.")
        torch = device.torch_with_hpu()
        changed = {
            name: value for name, value in (inputs or {}).items() if self._is_new(name, value)
        }
        with torch.no_grad():
            for name, value in changed.items():
                self.inputs[name].copy_(value)
        device.synchronize()
        before = torch.hpu.memory_stats()["InUse"]
        start = time.perf_counter()
        for _ in range(n):
            self.graph.replay()
            self.replays += 1
        device.synchronize()
        seconds = time.perf_counter() - start
        grown = torch.hpu.memory_stats()["InUse"] - before
        return ReplayReport(self.name, n, seconds, grown, sorted(changed), list(self.outputs))

    def _is_new(self, name: str, value: Any) -> bool:
        """Tell whether `value` has to be copied in; refuse it if it cannot be."""
        import torch

        if name not in self.inputs:
            known = ", ".join(self.inputs) or "none"
            raise RefusedError(f"Graph {self.name} has no input {name!r}: its inputs are {known}.")
        own = self.inputs[name]
        if value is own:
            return False
        if not isinstance(value, torch.Tensor):
            raise RefusedError(
                f"Input {name!r} of graph {self.name} is now a {type(value).__name__}: give a "
                f"tensor of shape {tuple(own.shape)} on {own.device}."
            )
        for what, now, then in (
            ("shape", tuple(value.shape), tuple(own.shape)),
            ("dtype", value.dtype, own.dtype),
            ("device", value.device, own.device),
        ):
            if now != then:
                raise RefusedError(
                    f"Input {name!r} of graph {self.name} now has {what} {now}, but was captured "
                    f"with {what} {then}: give it that {what}, or capture the graph again."
                )
        return True


@dataclass(repr=False)
class ReplayReport(Report):
    """What replaying took.

    Attributes
    ----------
    name : str
        The graph.
    replays : int
        How often it ran.
    seconds : float
        Time for all of them, the device synchronised around them.
    grown : int
        Bytes by which the device memory in use has changed.
    copied : list of str
        Inputs that had new data.
    outputs : list of str
        Variables that now hold the results.
    """

    name: str
    replays: int
    seconds: float
    grown: int
    copied: list[str]
    outputs: list[str]

    def title(self) -> str:
        """Return the headline."""
        times = "once" if self.replays == 1 else f"{self.replays} times"
        each = units.duration(self.seconds / self.replays)
        return f"Graph {self.name} replayed {times} on {device.label()}, {each} each"

    def rows(self) -> Sequence[Row]:
        """Return rate, memory, inputs and outputs."""
        rate = self.replays / self.seconds if self.seconds else 0.0
        rows = [("rate", units.rate(rate, "replays")), ("memory change", units.size(self.grown))]
        if self.copied:
            rows.append(("new data in", ", ".join(self.copied)))
        return [*rows, ("results in", ", ".join(self.outputs) or "no variable")]


@dataclass(repr=False)
class GraphList(Table):
    """The captured graphs of this process.

    Attributes
    ----------
    graphs : list of CapturedGraph
        In the order of their capture.
    wrapped : list of Wrapped
        The modules that capture by themselves, with a graph for each shape of their inputs.
    """

    graphs: list[CapturedGraph]
    wrapped: list[Wrapped] = field(default_factory=list)

    def title(self) -> str:
        """Return the headline."""
        of_modules = [use for one in self.wrapped for use in one.watch.uses.values()]
        count = len(self.graphs) + sum(use.graphed for use in of_modules)
        if not count:
            return f"No graphs are captured on {device.label()}: %%hpu_graph NAME captures a cell."
        memory = sum(one.memory for one in self.graphs)
        memory += sum(use.memory for use in of_modules)
        graphs = f"{count} graph{'s' if count > 1 else ''}"
        return f"{graphs} on {device.label()}, {units.size(memory)}"

    def columns(self) -> Sequence[str]:
        """Return the columns of the table."""
        return ("graph", "operations", "memory", "replays", "inputs", "outputs")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return a line for each graph; of a wrapped module, for each shape of its inputs."""
        captured = [
            (
                one.name,
                str(one.operations.total()),
                units.size(one.memory),
                str(one.replays),
                _described(one.inputs),
                _described(one.outputs),
            )
            for one in self.graphs
        ]
        of_modules = [
            (one.watch.name, "", units.size(use.memory), _replays(use), described(kind), "")
            for one in self.wrapped
            for kind, use in one.watch.uses.items()
        ]
        return captured + of_modules


def register(graph: CapturedGraph) -> None:
    """Keep a captured graph under its name; one that has the name already is dropped."""
    if graph.name in _graphs:
        drop(graph.name)
    _graphs[graph.name] = graph


def find(name: str) -> CapturedGraph:
    """Return the captured graph of this name.

    Raises
    ------
    RefusedError
        There is none.
    """
    if name not in _graphs:
        mend = suggestion(name, _graphs) or f"capture a cell with %%hpu_graph {name} first."
        raise RefusedError(f"There is no graph {name!r}: {mend}")
    return _graphs[name]


def listed() -> GraphList:
    """Return the captured graphs, and the modules that are wrapped in graphs."""
    return GraphList(list(_graphs.values()), wrapped_modules())


def drop(name: str) -> None:
    """Forget a graph and free its memory.

    Raises
    ------
    RefusedError
        There is none of this name.
    """
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
