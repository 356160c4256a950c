"""Measures the steps of a dry run with the card's clock."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hpu_magic.simulator import card_time
from hpu_magic.simulator.cards.configuration import card_time_host
from hpu_magic.simulator.dry_run.batches import Batches, Count, ranks_of
from hpu_magic.simulator.dry_run.labels import Labels
from hpu_magic.simulator.dry_run.modules import Modules
from hpu_magic.simulator.dry_run.steps import LONGEST_CYCLE, REPEATS
from hpu_magic.simulator.dry_run.transfers import Spans, is_transfer

_OTHERS = "other ranks"
_PLACES = {
    "optimizer": "the optimizer",
    "data": "copies from the host",
    "fallbacks": "copies of CPU fallbacks",
    "exchange": "collectives and messages",
    _OTHERS: _OTHERS,
}
_ENGINES = ("matrix", "vector", "memory")
_WAITING = "waiting"
_LIMITS = {"launch": "launches"}


class _Times(defaultdict[Any, float]):
    def __init__(self) -> None:
        super().__init__(float)


@dataclass(frozen=True)
class _Step:
    seconds: float
    compilation: float
    compiled: int
    launches: int
    matrix: float
    phases: _Times
    modules: _Times  # by path and limit
    sent: dict[str, float]  # bytes by kind of collective
    count: Count
    here: float  # seconds on this machine


class Timing:
    """The last steps of a script, or the entire run of a script without steps."""

    def __init__(self, native: Any) -> None:
        self._engine = native
        self.labels = Labels(native)
        self._batches = Batches(self.labels)
        self._modules = Modules(self.labels, self._batches.root_runs)
        self._steps: deque[_Step] = deque(maxlen=LONGEST_CYCLE * REPEATS)
        self.records: list[card_time.Record] = []
        """The work of the last step."""
        self.arrivals: list[tuple[float, float, float]] = []
        """Times when the card began to wait for a message, its transfer began, and it arrived."""
        self._before = card_time.read()
        self._began = time.perf_counter()
        self._compiled = 0

    def install(self) -> None:
        """Start to observe modules, loaders and backward passes."""
        self.labels.install()
        self._modules.install()
        self._batches.install()

    def forget(self) -> None:
        """Forget the times of all steps."""
        self._steps.clear()

    def step_ended(self) -> None:
        """Measure the time since the end of the last step."""
        now, before = card_time.read(), self._before
        moment = time.perf_counter()
        compiled = self._engine.counters()["graph_compilation"]["count"]
        self.records = card_time.take_records()
        phases, modules = self._times(self.records, now.card)
        self.labels.step_ended()
        step = _Step(
            now.end - before.end,
            now.compilation - before.compilation,
            compiled - self._compiled,
            now.launches - before.launches,
            now.busy["matrix"] - before.busy["matrix"],
            phases,
            modules,
            {kind: sent - before.sent.get(kind, 0) for kind, sent in now.sent.items()},
            self._batches.take(),
            moment - self._began,
        )
        self._before, self._began, self._compiled = now, moment, compiled
        self._steps.append(step)

    def _times(self, records: list[card_time.Record], last: float) -> tuple[_Times, _Times]:
        """Return the time of each phase, and the time of each module by its limiting part.

        ``last`` is the time at which the step ended. Collectives run in parallel with other work.
        Only times when the card does nothing else count as waiting for collectives or messages.
        """
        phases, modules = _Times(), _Times()
        transfers = Spans(
            [(begin, end) for _, begin, end in self.arrivals]
            + [
                (each.start, each.start + each.seconds)
                for each in records
                if is_transfer(each) and each.name != "recv"
            ]
        )
        messages = Spans((ready, begin) for ready, begin, _ in self.arrivals)
        self.arrivals.clear()
        work = [record for record in records if not is_transfer(record)]
        end = self._before.card

        def add(phase: str, number: int, limits: dict[str, float]) -> None:
            for limit, seconds in limits.items():
                phases[phase] += seconds
                modules[_PLACES.get(phase, self._modules.paths[number]), limit] += seconds

        def wait(phase: str, number: int, until: float) -> None:
            exchange = transfers.during(end, until)
            others = max(0.0, min(messages.during(end, until), until - end - exchange))
            add("exchange", 0, {"links": exchange})
            add(_OTHERS, 0, {_OTHERS: others})
            add(phase, number, {_WAITING: max(0.0, until - end - exchange - others)})

        for record in work:
            for phase, number, limits in self._shares(record):
                wait(phase, number, record.start)
                add(phase, number, limits)
                end = max(end, record.start)  # the work waits only once, before its first part
            end = record.start + record.seconds
        wait("other", 0, last)
        return phases, modules

    def _shares(self, record: card_time.Record) -> Iterator[tuple[str, int, dict[str, float]]]:
        """Yield the phase, the module number and the limits of each part of the work."""
        for label, limits in record.shares or [(record.label, _limits(record))]:
            fell_back, own = divmod(label, card_time.FALLBACK)
            phase, number = self.labels.places[own]
            if fell_back:
                phase = "fallbacks"
            elif phase in ("forward", "other") and limits["links"]:
                phase, number = "data", 0  # a copy from the host
            yield phase, number, {_LIMITS.get(name, name): each for name, each in limits.items()}

    def described(self, cycle: int | None) -> dict[str, Any]:
        """Return the mean of the repeating steps, or of the last steps, as JSON types."""
        has_steps = bool(self._steps)
        if not has_steps:
            self.step_ended()
        # The first step also contains the work before it.
        steps = list(self._steps)[-REPEATS * cycle if cycle else 1 :] or [self._steps[-1]]
        reading = card_time.read()

        def mean(values: Iterable[float]) -> float:
            return sum(values) / len(steps)

        def means(each: Iterable[Mapping[Any, float]]) -> dict[Any, float]:
            total = _Times()
            for times in each:
                for key, seconds in times.items():
                    total[key] += seconds / len(steps)
            return {key: seconds for key, seconds in total.items() if seconds}

        modules = means(step.modules for step in steps)
        limits = _Times()
        for (_, limit), seconds in modules.items():
            limits[limit] += seconds
        return {
            "whole_run": not has_steps,
            "seconds": mean(step.seconds for step in steps),
            "band": reading.band,
            "phases": means(step.phases for step in steps),
            "modules": [[*key, each] for key, each in modules.items()],
            "classes": self._modules.classes,
            "limits": limits,
            "matrix": mean(step.matrix for step in steps),
            "in_float32": reading.in_float32,
            "launches": mean(step.launches for step in steps),
            "compilation": reading.compilation,
            "recompilation": mean(step.compilation for step in steps),
            "recompiled": steps[-1].compiled,
            "host_is_measured": card_time_host() == "measured",
            "here": mean(step.here for step in steps),
            "unpriced": reading.unpriced,
            "sent": means(step.sent for step in steps),
            "data": _data([step.count for step in steps]),
        }


def _data(counts: list[Count]) -> dict[str, Any]:
    """Return mean counts of all steps, and the ranks of the last step, as JSON types."""
    last = counts[-1]
    ranks, ranks_are_known = ranks_of(last.loader)
    names = ("samples", "tokens", "batches", "waited")
    return {
        **{name: sum(getattr(each, name) for each in counts) / len(counts) for name in names},
        "source": last.source,
        "ranks": ranks,
        "ranks_are_known": ranks_are_known,
        "loader": None if last.loader is None else asdict(last.loader),
    }


def _limits(record: card_time.Record) -> dict[str, float]:
    """Return the time of an operator on the slowest engine, on the links, and for its launch."""
    parts = record.parts
    slowest = max(_ENGINES, key=parts.__getitem__)
    return {name: parts[name] for name in (slowest, "links", "launch")}
