"""Collects the record of a dry run from the engine."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from hpu_magic.simulator import card_time
from hpu_magic.simulator.cards.configuration import Configuration
from hpu_magic.simulator.dry_run.owners import Owners
from hpu_magic.simulator.dry_run.steps import Steps
from hpu_magic.simulator.dry_run.timing import Timing

_OWNERS_ARE_FOUND_IN = 2  # steps
_POINTS = 380
_PHASES = {
    "forward": "activations, inputs and other tensors",
    "backward": "temporary memory of the backward pass",
    "optimizer": "temporary memory of the optimizer",
}
_LINES = {
    "host_synchronization": "host_reads",
    "cpu_fallback": "fallbacks",
    "stand_in": "stand_ins",
    "assumed_shape": "assumed_shapes",
    "assumed_indices": "assumed_indices",
}


class Recorder:
    """Watches the steps of a script, and reads the engine's counters at the end."""

    def __init__(
        self,
        native: Any,
        steps: Steps,
        values: Sequence[tuple[str, int, float]] = (),
        trace: str | None = None,
        imbalance: float = 1.0,
    ) -> None:
        self._engine = native
        self._steps = steps
        self._values = values
        self._trace = trace
        self._imbalance = imbalance
        self._owners = Owners(self._engine.reservation_of)
        self._before: tuple[int, ...] = (0, 0, 0)
        self._optimizer = ""
        self._memory_course: list[int] = []
        self._has_optimizer = False
        self._backward_passes = 0  # that run now; a checkpoint may start one in another
        self._timing: Timing | None = None
        if card_time.is_on():
            card_time.start_if_requested(records=True)
            self._timing = Timing(native)

    def install(self) -> None:
        """Call this object before and after each optimizer step, and after each backward pass."""
        if self._timing is not None:
            self._timing.install()
        self._watch_optimizers()
        self._watch_backward_passes()
        register_optimizer_step_pre_hook(_outside_graphs(self._before_step))
        register_optimizer_step_post_hook(_outside_graphs(self._after_step))

    def _watch_optimizers(self) -> None:
        kind: Any = Optimizer
        create = kind.__init__

        @functools.wraps(create)
        def created(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            if not self._has_optimizer:  # backward passes have not ended steps
                self._has_optimizer = True
                self._before = (0, 0, 0)
                self._steps.forget()
                if self._timing is not None:
                    self._timing.forget()
            create(optimizer, *args, **kwargs)

        kind.__init__ = created

    def _watch_backward_passes(self) -> None:
        backward: Any = torch.autograd.backward

        @functools.wraps(backward)
        def run(*args: Any, **kwargs: Any) -> None:
            self._backward_passes += 1
            try:
                backward(*args, **kwargs)
            finally:
                self._backward_passes -= 1
            if not self._has_optimizer and not self._backward_passes:
                self._end_step()

        torch.autograd.backward = torch._disable_dynamo(run)

    def observe(self, arrivals: list[tuple[float, float, float]]) -> None:
        """Measure waits for messages from other ranks, whose times are appended to `arrivals`."""
        if self._timing is not None:
            self._timing.arrivals = arrivals

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self._steps.count < _OWNERS_ARE_FOUND_IN:
            self._owners.find([optimizer])
        self._engine.set_optimizing(True)
        if self._timing is not None:
            self._timing.labels.begin("optimizer")
        self._optimizer = type(optimizer).__name__

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        self._engine.set_optimizing(False)
        if self._timing is not None:
            self._timing.labels.end()
        if self._steps.count < _OWNERS_ARE_FOUND_IN:
            self._owners.find([optimizer])
        self._end_step()

    def _end_step(self) -> None:
        now = (*self._engine.reservation_totals(), self._engine.operations_digest())
        # The digest is a sum modulo 2^64.
        work = tuple(
            (after - before) % 2**64 for after, before in zip(now, self._before, strict=True)
        )
        self._before = now
        if not any(work):
            self._steps.skip()
            return
        if self._timing is not None and self._steps.repeated is None:
            self._timing.step_ended()
        self._memory_course = self._engine.memory_course(_POINTS)
        self._steps.add((*work, self._in_use()))

    def _in_use(self) -> int:
        return int(self._engine.memory_stats()["InUse"])

    def record(self, ended: dict[str, Any]) -> dict[str, Any]:
        """Return the record as JSON types."""
        self._owners.find()
        peak, reservations = self._engine.peak_reservations()
        counters = self._engine.counters()
        graphs = counters["graph_compilation"]["count"]
        self._warn_if_nothing_ran(graphs)
        card = Configuration.from_environment()
        events = self._event_lines()
        return {
            "ended": {**ended, "line": _described(ended.get("line") or ("", 0))},
            "card": card.generation,
            "ranks": self._ranks(),
            "mode": "lazy" if os.environ.get("PT_HPU_LAZY_MODE") == "1" else "eager",
            "capacity": int(self._engine.memory_stats()["Limit"]),
            "peak": peak,
            "composition": self._composition(reservations),
            "memory_course": self._memory_course or self._engine.memory_course(_POINTS),
            "memory_lines": _by_line((lines, size) for _, lines, _, size in reservations),
            "failure": self._failure(),
            "steps": self._steps.count,
            "optimizer": self._optimizer,
            "cycle": self._steps.repeated,
            "requested": self._steps.most,
            "time": self._time(),
            "graphs": graphs,
            "graph_breaks": _graph_breaks(),
            "torch": torch.__version__,
            "uses_lightning": _uses_lightning(),
            "unused_values": self._unused_values(events["stand_ins"]),
            "imbalance": self._imbalance,
            "is_unbalanced": self._engine.is_unbalanced(),
            **events,
        }

    def _time(self) -> dict[str, Any] | None:
        """Return the time of a step, and write its trace."""
        if self._timing is None:
            return None
        time = self._timing.described(self._steps.repeated)
        if self._trace is not None:
            card_time.write_trace(self._trace, self._timing.records)
        return time if card_time.read().launches else None

    def _warn_if_nothing_ran(self, graphs: int) -> None:
        """Print a warning if lazy mode recorded operations, but never ran any."""
        count = self._engine.pending_operations()
        if count and not graphs:
            print(
                f"hpu-magic: The script recorded {count} operations in lazy mode, but ran none of "
                "them: call habana_frameworks.torch.core.mark_step() after loss.backward() and "
                "after optimizer.step(), or set PT_HPU_LAZY_MODE=0.",
                file=sys.stderr,
            )

    def _unused_values(self, read: list[dict[str, Any]]) -> list[str]:
        """Return the supplied stand-ins whose lines did not read a value."""
        lines = [line for each in read for line in (each, each.get("library")) if line]
        places = [f"/{line['file']}:{line['line']}" for line in lines]
        return [
            f"{file}:{line}={value:g}"
            for file, line, value in self._values
            if not any(f"/{place}".endswith(f"/{file}:{line}") for place in places)
        ]

    def _ranks(self) -> int:
        """Return the number of ranks that the script has started, or 1."""
        if not torch.distributed.is_available():
            return 1
        from hpu_magic.simulator.dry_run import world

        return world.ranks()

    def _composition(self, reservations: list[Any]) -> dict[str, int]:
        kinds: Counter[str] = Counter()
        for number, _, phase, size in reservations:
            kinds[self._owners.of(number) or _PHASES[phase]] += size
        return dict(kinds.most_common())

    def _failure(self) -> dict[str, Any] | None:
        failure = self._engine.last_failure()
        if failure is None:
            return None
        lines = failure.pop("lines")
        return {**failure, "line": _described(*lines)}

    def _event_lines(self) -> dict[str, list[dict[str, Any]]]:
        lines: dict[str, list[dict[str, Any]]] = {name: [] for name in _LINES.values()}
        for kind, name, places, count in self._engine.line_counts():
            if kind in _LINES:
                counted = {"what": name, "count": count}
                lines[_LINES[kind]].append({**_described(*places), **counted})
        for each in lines.values():
            each.sort(key=lambda line: -line["count"])
        return lines


def _outside_graphs(hook: Callable[..., None]) -> Callable[..., None]:
    """Return a hook that `torch.compile` skips when it compiles an optimizer's step."""

    def call(*arguments: Any) -> None:
        hook(*arguments)

    # Unlike `torch.compiler.disable`, this imports the compiler only if the hook is called.
    wrapped: Callable[..., None] = torch._disable_dynamo(call)
    return wrapped


def _graph_breaks() -> int:
    """Return how often `torch.compile` had to split a function."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return sum(counters.get("graph_break", {}).values())


def _uses_lightning() -> bool:
    """Return whether Lightning was imported, but not our accelerator for it."""
    names = {"lightning", "pytorch_lightning", "lightning_fabric"}
    return not names.isdisjoint(sys.modules) and "hpu_magic.lightning" not in sys.modules


def _by_line(sizes: Any) -> list[dict[str, Any]]:
    """Return the memory that each line of the script allocated, largest first.

    If most of it was allocated by a line of a library, this line is included, with its part.
    """
    total: Counter[tuple[str, int]] = Counter()
    parts: dict[tuple[str, int], Counter[tuple[str, int]]] = defaultdict(Counter)
    for (own, library), size in sizes:
        total[own] += size
        parts[own][library] += size
    lines = []
    for own, size in total.most_common(20):
        ((library, part),) = parts[own].most_common(1)
        line = {**_described(own, library), "bytes": size}
        if line["library"]:
            line["library"]["bytes"] = part
        lines.append(line)
    return lines


def _described(line: tuple[str, int], library: tuple[str, int] = ("", 0)) -> dict[str, Any]:
    file, number = line
    text = linecache.getline(file, number).strip()
    inner = _described(library) if library[0] else None
    return {"file": file, "line": number, "text": text, "library": inner}
