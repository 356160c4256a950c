"""Count device events in the entire process or inside a ``with`` block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from habana_frameworks.torch.hpu import _metrics_file
from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher, EventId, Parameters

from hpu_magic.simulator import engine

Counts = dict[str, Any]  # engine counters: count, nanoseconds, longest, operators
Statistics = list[tuple[str, Any]]


class MetricNotFound(Exception):
    """Raised if a metric does not exist in this process."""


@dataclass(frozen=True)
class _Kind:
    """The events of a metric, by engine counter, and the function that computes its statistics."""

    events: dict[str, EventId]
    statistics: Callable[..., Statistics]


def _mean(total: float, number: int) -> float:
    return total / number if number else 0.0


def _of_compilations(counter: Counts) -> Statistics:
    microseconds = counter["nanoseconds"] / 1e3
    return [
        ("TotalNumber", counter["count"]),
        ("TotalTime", round(microseconds)),
        ("AvgTime", _mean(microseconds, counter["count"])),
    ]


def _of_fallbacks(counter: Counts) -> Statistics:
    return [("TotalNumber", counter["count"]), ("FallbackOps", counter["operators"])]


def _of_defragmentations(counter: Counts) -> Statistics:
    return [
        ("TotalNumber", counter["count"]),
        ("TotalSuccessful", counter["operators"].get("successful", 0)),
        ("AvgTime", _mean(counter["nanoseconds"] / 1e6, counter["count"])),
        ("MaxTime", counter["longest"] / 1e6),
    ]


def _of_cache(hit: Counts, miss: Counts) -> Statistics:
    return [
        ("TotalHit", hit["count"]),
        ("RecipeHit", hit["operators"]),
        ("TotalMiss", miss["count"]),
        ("RecipeMiss", miss["operators"]),
    ]


_KINDS = {
    name: _Kind({name: event}, statistics)
    for name, event, statistics in (
        ("graph_compilation", EventId.GRAPH_COMPILATION, _of_compilations),
        ("cpu_fallback", EventId.CPU_FALLBACK, _of_fallbacks),
        ("memory_defragmentation", EventId.MEMORY_DEFRAGMENTATION, _of_defragmentations),
    )
}


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in {"", "0", "false", "no", "off"}


if _is_set("PT_HPU_ENABLE_CACHE_METRICS"):
    _cache_events = {"recipe_cache_hit": EventId.CACHE_HIT, "recipe_cache_miss": EventId.CACHE_MISS}
    _KINDS["recipe_cache"] = _Kind(_cache_events, _of_cache)
_WITH_DETAILS = _is_set("PT_HPU_METRICS_GC_DETAILS")


def _combined(first: Counts, second: Counts, sign: int) -> Counts:
    """Add or subtract counts by key, and omit operators whose count is 0."""
    result: Counts = {}
    for key in {**first, **second}:
        a, b = first.get(key, 0), second.get(key, 0)
        if isinstance(a, dict) or isinstance(b, dict):
            combined = _combined(a or {}, b or {}, sign)
            nonzero = {name: count for name, count in combined.items() if count}
            result[key] = nonzero if key == "operators" else combined
        elif key == "longest":
            result[key] = max(a, b) if sign > 0 or a > b else 0
        else:
            result[key] = a + sign * b
    return result


class Metric:
    """Counts events from `start` to `stop`.

    `metric_global` and `metric_localcontext` create metrics.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kind = _KINDS[name]
        self._stopped: Counts = self._zero()
        self._since: Counts | None = None
        self._details: list[tuple[str, float]] = []
        self._handles: list[int] = []

    def name(self) -> str:
        """Return the name of the metric."""
        return self._name

    def stats(self) -> Statistics:
        """Return the statistics as (key, value) pairs.

        Times are in microseconds for ``graph_compilation`` and in milliseconds for
        ``memory_defragmentation``.
        """
        statistics = self._kind.statistics(*self._counted().values())
        if _WITH_DETAILS and self._name == "graph_compilation":
            EventDispatcher.instance().deliver()
            statistics.append(("Recipes", list(self._details)))
        return statistics

    def reset(self) -> None:
        """Set the count to 0."""
        self._stopped = self._zero()
        self._details.clear()
        if self._since is not None:
            self._since = self._now()

    def start(self) -> None:
        """Start counting; this has no effect if counting has already started."""
        if self._since is None:
            self._since = self._now()
            if _WITH_DETAILS and self._name == "graph_compilation":
                self._subscribe(self._note_detail)

    def stop(self) -> None:
        """Stop counting, remove the callbacks, and keep the statistics."""
        self._stopped = self._counted()
        self._since = None
        for handle in self._handles:
            EventDispatcher.instance().unsubscribe(handle)
        self._handles.clear()

    def on_metric_change(self, callback: Callable[[Metric], object]) -> None:
        """Call ``callback(metric)`` in a bridge thread soon after each change."""
        self._subscribe(lambda timestamp, parameters: callback(self))

    def _subscribe(self, callback: Callable[[int, Parameters], object]) -> None:
        for event in self._kind.events.values():
            self._handles.append(EventDispatcher.instance().subscribe(event, callback))

    def _note_detail(self, timestamp: int, parameters: Parameters) -> None:
        event = dict(parameters)
        self._details.append((event["name"], float(event["duration"])))

    def _counted(self) -> Counts:
        if self._since is None:
            return self._stopped
        return _combined(self._stopped, _combined(self._now(), self._since, -1), +1)

    def _now(self) -> Counts:
        counters = engine.load().counters()
        return {name: counters[name] for name in self._kind.events}

    def _zero(self) -> Counts:
        now = self._now()
        return _combined(now, now, -1)


_global: dict[str, Metric] = {}


def _start_global() -> None:
    """Start the process-wide metrics, which include events that the engine has already counted."""
    for name in _KINDS:
        metric = _global[name] = Metric(name)
        metric.start()
        metric._since = metric._zero()


def metric_global(name: str) -> Metric | None:
    """Return a process-wide metric, or None if it does not exist."""
    return _global.get(name)


@contextmanager
def metric_localcontext(name: str) -> Iterator[Metric]:
    """Count only the events inside the ``with`` block.

    Raises MetricNotFound for an unknown metric; ``recipe_cache`` exists only if
    ``PT_HPU_ENABLE_CACHE_METRICS`` is set.
    """
    if name not in _KINDS:
        raise MetricNotFound(f"Unknown metric {name!r}; use {' or '.join(_KINDS)}.")
    metric = Metric(name)
    metric.start()
    try:
        yield metric
    finally:
        metric.stop()


def metrics_dump(file_name: str, format: str = "json") -> None:
    """Write the statistics of all metrics to a file, in the format ``"json"`` or ``"text"``.

    If the file already exists, the new file gets a numeric suffix. Other formats raise ValueError.
    """
    _metrics_file.MetricsFile(file_name, format).append("user", _global.values())


_start_global()
_metrics_file.start(list(_global.values()))
