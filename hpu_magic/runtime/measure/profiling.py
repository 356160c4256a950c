"""The PyTorch profiler on the device: a table, and a trace for TensorBoard and Perfetto."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpu_magic import units
from hpu_magic.errors import RefusedError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.present.table import Table

_MOST_LINES = 12


@dataclass(frozen=True)
class Operator:
    """Time spent in one operator.

    Attributes
    ----------
    name : str
        The operator.
    calls : int
        Number of calls.
    host, on_device : float
        Seconds in itself on the host and on the device, without what it called.
    shapes : str
        Shapes of the inputs of the costliest calls.
    """

    name: str
    calls: int
    host: float
    on_device: float
    shapes: str


@dataclass(repr=False)
class ProfileReport(Table):
    """What ran, and for how long.

    Attributes
    ----------
    operators : list of Operator
        The costliest first.
    seconds : float
        How long the code ran.
    trace : str or None
        The trace file.
    """

    operators: list[Operator] = field(default_factory=list)
    seconds: float = 0.0
    trace: str | None = None

    def title(self) -> str:
        """Return the headline."""
        return f"Profile on {device.label()}: {units.duration(self.seconds)}"

    def columns(self) -> Sequence[str]:
        """Return the columns of the table; one in which nothing would stand is left out."""
        return [name for name, _ in self._filled()]

    def lines(self) -> Sequence[Sequence[str]]:
        """Return the costliest operators."""
        return list(zip(*(texts for _, texts in self._filled()), strict=True))

    def _filled(self) -> list[tuple[str, list[str]]]:
        shown = self.operators[:_MOST_LINES]
        columns = [
            ("operator", [one.name for one in shown]),
            ("calls", [str(one.calls) for one in shown]),
            ("host time", [units.duration(one.host) for one in shown]),
            (
                "device time",
                [units.duration(one.on_device) if one.on_device else "" for one in shown],
            ),
            ("input shapes", [one.shapes for one in shown]),
        ]
        return [(name, texts) for name, texts in columns if any(texts)]

    def notes(self) -> Sequence[str]:
        """Say what is not shown, and how to open the trace."""
        notes = []
        rest = self.operators[_MOST_LINES:]
        if rest:
            total = units.duration(sum(one.host + one.on_device for one in rest))
            notes.append(f"{len(rest)} other operators took {total} together.")
        if self.trace is not None:
            folder = os.path.dirname(self.trace)
            notes.append(
                f"Trace: {self.trace}; open it at ui.perfetto.dev, or run tensorboard --logdir "
                f"{folder}."
            )
        return notes


class profile:
    """Profile a ``with`` block; `report` holds the result afterwards.

    Parameters
    ----------
    directory : str, path or None
        Folder that the trace is written to (``*.pt.trace.json``); None writes none.
    keep : callable
        Called with the finished report.

    Raises
    ------
    RefusedError
        The folder cannot be made, or there is no device.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        keep: Callable[[ProfileReport], object] = lambda report: None,
    ) -> None:
        # Its library prints a line at each start and stop unless told at its first use.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        self._torch = device.torch_with_hpu()
        self._directory = Path(directory).expanduser() if directory is not None else None
        if self._directory is not None:
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
            except (OSError, ValueError) as error:
                raise RefusedError(
                    f"The folder {str(directory)!r} cannot be created ({error}): use another one."
                ) from None
        self._keep = keep
        self._profiler: Any = None
        self._start = 0.0
        self.report: ProfileReport | None = None

    def __enter__(self) -> profile:
        device.synchronize()
        # The activities are left to the default, which names the device on Gaudi.
        self._profiler = self._torch.profiler.profile(record_shapes=True)
        self._profiler.__enter__()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        device.synchronize()
        seconds = time.perf_counter() - self._start
        profiler, self._profiler = self._profiler, None
        profiler.__exit__(*error)
        self.report = ProfileReport(_operators(profiler), seconds, self._write(profiler))
        self._keep(self.report)

    def summary(self) -> ProfileReport | None:
        """Return the finished report."""
        return self.report

    def _write(self, profiler: Any) -> str | None:
        if self._directory is None:
            return None
        # TensorBoard looks for worker.time.pt.trace.json.
        path = self._directory / f"hpu_{os.getpid()}.{time.time_ns()}.pt.trace.json"
        profiler.export_chrome_trace(str(path))
        return str(path)


def _operators(profiler: Any) -> list[Operator]:
    """Return the profiled operators, the costliest first."""
    costliest: dict[str, tuple[float, str]] = {}
    for event in profiler.key_averages(group_by_input_shape=True):
        cost = event.self_cpu_time_total + event.self_device_time_total
        shapes = ", ".join(str(shape) for shape in event.input_shapes or () if shape)
        if cost >= costliest.get(event.key, (-1.0, ""))[0]:
            costliest[event.key] = (cost, shapes)
    found = [
        Operator(
            event.key,
            event.count,
            event.self_cpu_time_total / 1e6,
            event.self_device_time_total / 1e6,
            costliest.get(event.key, (0.0, ""))[1],
        )
        for event in profiler.key_averages()
    ]
    return sorted(found, key=lambda one: -(one.host + one.on_device))
