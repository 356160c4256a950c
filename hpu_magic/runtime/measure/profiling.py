"""PyTorch's profiler: a table of operators, and a trace for TensorBoard and Perfetto."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpu_magic import backend, units
from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.card_time import CardTime, CardWatch
from hpu_magic.runtime.present.table import Table

_MOST_LINES = 12


@dataclass(frozen=True)
class Operator:
    """The time of one operator."""

    name: str
    calls: int
    host: float
    on_device: float
    """Host and device time in seconds, excluding the operators that this operator calls."""
    shapes: str  # input shapes of the most expensive calls
    card: float = 0.0
    """Estimated time on a card in seconds, if the clock of the simulated card is on."""


@dataclass(repr=False)
class ProfileReport(Table):
    """The operators that ran and the time spent in each."""

    operators: list[Operator] = field(default_factory=list)  #: most expensive first
    seconds: float = 0.0  #: duration of the code
    trace: str | None = None  #: the trace file
    card: CardTime | None = None
    """Estimated time on a card; None if the clock of the simulated card is off."""

    def title(self) -> str:
        """Return the headline."""
        return f"Profile on {device.label()}: {units.duration(self.seconds)}"

    def columns(self) -> Sequence[str]:
        """Return the names of the columns that are not empty."""
        return [name for name, _ in self._filled()]

    def lines(self) -> Sequence[Sequence[str]]:
        """Return the most expensive operators."""
        return list(zip(*(texts for _, texts in self._filled()), strict=True))

    def _filled(self) -> list[tuple[str, list[str]]]:
        shown = self.operators[:_MOST_LINES]
        columns = [
            ("operator", [each.name for each in shown]),
            ("calls", [str(each.calls) for each in shown]),
            ("host time", [units.duration(each.host) if each.host else "" for each in shown]),
            (
                "device time",
                [units.duration(each.on_device) if each.on_device else "" for each in shown],
            ),
            (
                "card time (estimate)",
                [units.duration(each.card) if each.card else "" for each in shown],
            ),
            ("input shapes", [each.shapes for each in shown]),
        ]
        return [(name, texts) for name, texts in columns if any(texts)]

    def notes(self) -> Sequence[str]:
        """Return notes on the remaining operators and on how to open the trace."""
        notes = []
        if self.card is not None:
            notes.append(f"Card time: {self.card.text()}. Use: {self.card.use() or 'none'}.")
        rest = self.operators[_MOST_LINES:]
        if rest:
            total = units.duration(sum(each.host + each.on_device for each in rest))
            notes.append(f"{len(rest)} other operators took {total} in total.")
        if self.trace is not None:
            folder = os.path.dirname(self.trace)
            notes.append(
                f"Trace: {self.trace}; open it at ui.perfetto.dev, or run tensorboard --logdir "
                f"{folder}."
            )
        return notes


class profile:
    """Profile a ``with`` block; afterwards, `report` contains the result.

    ``directory`` is the folder for the trace (``*.pt.trace.json``), or None for no trace. ``keep``
    is called with the report. Raises `HPUError` if the folder cannot be created or there is no
    device.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        keep: Callable[[ProfileReport], object] = lambda report: None,
    ) -> None:
        # Kineto prints a line at each start and stop, unless this variable is set beforehand.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        self._torch = device.torch_with_hpu()
        self._directory = Path(directory).expanduser() if directory is not None else None
        if self._directory is not None:
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
            except (OSError, ValueError) as error:
                raise HPUError(
                    f"The folder {str(directory)!r} cannot be created ({error}): use another one."
                ) from None
        self._keep = keep
        self._profiler: Any = None
        self._start = 0.0
        self.report: ProfileReport | None = None

    def __enter__(self) -> profile:
        device.synchronize()
        self._recording = backend.card_records()
        # On Gaudi, the default activities include the device.
        # This recording has only one cycle, but without `acc_events`, torch 2.10 and 2.11 warn that
        # the events of earlier cycles are cleared.
        self._profiler = self._torch.profiler.profile(record_shapes=True, acc_events=True)
        self._profiler.__enter__()
        self._records = self._recording.__enter__()
        self._watch = CardWatch()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        device.synchronize()
        seconds = time.perf_counter() - self._start
        card = self._watch.lap()
        self._recording.__exit__(None, None, None)
        profiler, self._profiler = self._profiler, None
        profiler.__exit__(*error)
        operators = _with_card_time(_operators(profiler), self._records)
        self.report = ProfileReport(operators, seconds, self._write(profiler), card)
        self._keep(self.report)

    def summary(self) -> ProfileReport | None:
        """Return the finished report."""
        return self.report

    def _write(self, profiler: Any) -> str | None:
        if self._directory is None:
            return None
        # TensorBoard expects file names of the form worker.time.pt.trace.json.
        path = self._directory / f"hpu_{os.getpid()}.{time.time_ns()}.pt.trace.json"
        profiler.export_chrome_trace(str(path))
        if self._records:
            _add_card_time(path, self._records)
        return str(path)


def _add_card_time(path: Path, records: Sequence[Any]) -> None:
    """Add tracks with the card time to a trace, starting at its first operator."""
    trace = json.loads(path.read_text())
    first = min((each["ts"] for each in trace["traceEvents"] if each["ph"] == "X"), default=0.0)
    start = first / 1e6 - min(record.launched for record in records)
    trace["traceEvents"] += backend.card_trace_events(records, start)
    path.write_text(json.dumps(trace))


def _with_card_time(operators: list[Operator], records: Sequence[Any]) -> list[Operator]:
    """Return the operators and graphs with their card time, most expensive first."""
    counts: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for record in records:
        name = record.name.partition(".")[0]  # the profiler's names do not include the overload
        counts[name] += 1
        seconds[name] += record.seconds
    timed = [replace(each, card=seconds.pop(each.name, 0.0)) for each in operators]
    timed += [Operator(name, counts[name], 0.0, 0.0, "", seconds[name]) for name in seconds]
    return sorted(timed, key=lambda each: (-each.card, -(each.host + each.on_device)))


def _operators(profiler: Any) -> list[Operator]:
    """Return the profiled operators."""
    costliest: dict[str, tuple[float, str]] = {}
    for event in profiler.key_averages(group_by_input_shape=True):
        cost = event.self_cpu_time_total + event.self_device_time_total
        shapes = ", ".join(str(shape) for shape in event.input_shapes or () if shape)
        if cost >= costliest.get(event.key, (-1.0, ""))[0]:
            costliest[event.key] = (cost, shapes)
    return [
        Operator(
            event.key,
            event.count,
            event.self_cpu_time_total / 1e6,
            event.self_device_time_total / 1e6,
            costliest.get(event.key, (0.0, ""))[1],
        )
        for event in profiler.key_averages()
    ]
