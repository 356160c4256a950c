"""Make the modules of a model record input shapes and compilations."""

from __future__ import annotations

import collections
import csv
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from habana_frameworks.torch import hpu
from habana_frameworks.torch.utils.experimental._batches import Shapes, shapes_of

import torch
from hpu_magic.simulator import engine

_TAG = "[DETECT_RECOMPILE_AUTO]"
_BOLD, _PLAIN = "\033[1;36m", "\033[0m"
_STEPS = ("Step", "Recompiling modules", "New in", "New out", "Class", "Location", "Comment")
_MODULES = ("Module name", "Recompile count")


class CallRecord(NamedTuple):
    """The numbers of calls and compilations for the same input shapes of a model.

    Compilations between two calls are attributed to the first call.
    """

    shapes: Shapes
    calls: int
    compilations: int


class _ModuleCall(NamedTuple):
    step: int
    module: str
    kind: str
    location: str
    inputs: Shapes
    outputs: Shapes
    new_inputs: bool
    new_outputs: bool
    compilations: int

    def line(self) -> str:
        """Return the call as a log line."""
        return (
            f"{_TAG} step {self.step} {self.module} ({self.kind}) in {list(self.inputs)} "
            f"out {list(self.outputs)}: {self.compilations} compilations"
        )

    def comment(self) -> str:
        """Return the likely reason for the compilations."""
        if self.new_inputs:
            return "new input shapes"
        if self.new_outputs:
            return "new output shapes, but known input shapes"
        return "no new shapes: different values, or pending operations from other code"


def watch(model: torch.nn.Module, name: str, csv_out: str) -> torch.nn.Module:
    """Replace the ``forward`` methods of `model` and its submodules with recording functions."""
    log = _Log(csv_out)
    for path, module in model.named_modules():
        if module is not model:
            module.forward = _RecordingForward(module, f"{name}.{path}", log)
    model.forward = watched = _WatchedForward(_RecordingForward(model, name, log), log)
    model.report = watched.report
    model.raw_logs = log.raw_logs
    model.analyse_dynamicity = log.analyse_dynamicity
    return model


class _Log:
    def __init__(self, csv_out: str) -> None:
        self._csv_out = csv_out
        self.step = 0
        self.calls: list[_ModuleCall] = []
        self.nested: list[int] = []
        """The number of compilations in the submodule calls of each running module."""

    def raw_logs(self) -> list[str]:
        """Return one line per module call."""
        return [call.line() for call in self.calls]

    def analyse_dynamicity(self) -> None:
        """Print and save the compilations per step and module, and the totals per module."""
        compiling = [call for call in self.calls if call.compilations]
        steps = [
            (
                call.step,
                call.module,
                call.new_inputs,
                call.new_outputs,
                call.kind,
                call.location,
                call.comment(),
            )
            for call in compiling
        ]
        counts: collections.Counter[str] = collections.Counter()
        for call in compiling:
            counts[call.module] += call.compilations
        self._show(1, _STEPS, steps)
        self._show(2, _MODULES, counts.most_common())

    def _show(self, number: int, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        texts = [[str(cell) for cell in row] for row in rows]
        columns = zip(heads, *texts, strict=True)
        widths = [max(len(cell) for cell in column) for column in columns]
        for index, row in enumerate([list(heads), *texts]):
            line = "  ".join(map(str.ljust, row, widths)).rstrip()
            print(f"{_BOLD}{line}{_PLAIN}" if index == 0 else line)
        with Path(f"{self._csv_out}_{number}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([heads, *rows])


class _RecordingForward:
    # This is a class instead of a closure, so that a deep copy of the model also copies its
    # objects, which then call the copied modules.
    def __init__(self, module: torch.nn.Module, name: str, log: _Log) -> None:
        functools.update_wrapper(self, module.forward)
        self._forward = module.forward
        self._name = name
        self._kind = type(module).__name__
        self._location = _location(type(module))
        self._log = log
        self._inputs: set[Shapes] = set()
        self._outputs: set[Shapes] = set()

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Call the original forward, execute its operations, and record its compilations."""
        log = self._log
        log.nested.append(0)
        before = _compilations()
        try:
            outputs = self._forward(*inputs, **keywords)
            hpu.synchronize()
        finally:
            of_nested = log.nested.pop()
        compilations = _compilations() - before
        if log.nested:
            log.nested[-1] += compilations
        input_shapes, output_shapes = shapes_of((inputs, keywords)), shapes_of(outputs)
        log.calls.append(
            _ModuleCall(
                log.step,
                self._name,
                self._kind,
                self._location,
                input_shapes,
                output_shapes,
                input_shapes not in self._inputs,
                output_shapes not in self._outputs,
                compilations - of_nested,
            )
        )
        self._inputs.add(input_shapes)
        self._outputs.add(output_shapes)
        return outputs


class _WatchedForward:
    """Replacement for the model's forward; each call counts as a step."""

    def __init__(self, forward: Callable[..., Any], log: _Log) -> None:
        functools.update_wrapper(self, forward)
        self._forward = forward
        self._log = log
        self._calls: collections.Counter[Shapes] = collections.Counter()
        self._compilations: collections.Counter[Shapes] = collections.Counter()
        self._last: Shapes | None = None
        self._compilations_before = 0

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Call the original forward and record the shapes of its inputs."""
        hpu.synchronize()  # do not attribute operations of other code to a module
        self._end_last()
        self._log.step += 1
        self._last = shapes_of((inputs, keywords))
        self._calls[self._last] += 1
        return self._forward(*inputs, **keywords)

    def report(self) -> list[CallRecord]:
        """Execute recorded operations, then print and return the counts for each set of shapes."""
        hpu.synchronize()
        self._end_last()
        records = [
            CallRecord(shapes, calls, self._compilations[shapes])
            for shapes, calls in self._calls.most_common()
        ]
        print("calls  compilations  shapes")
        for record in records:
            shapes = ", ".join(str(list(shape)) for shape in record.shapes)
            print(f"{record.calls:>5}  {record.compilations:>12}  {shapes}")
        return records

    def _end_last(self) -> None:
        compilations = _compilations()
        if self._last is not None:
            self._compilations[self._last] += compilations - self._compilations_before
        self._compilations_before = compilations


def _compilations() -> int:
    return int(engine.load().counters()["graph_compilation"]["count"])


def _location(kind: type) -> str:
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):  # the class is a built-in, or was defined in a notebook
        return kind.__module__
