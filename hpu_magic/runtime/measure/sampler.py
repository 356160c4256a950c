"""Sampling of device memory and of pushed values, for every panel of a process.

One daemon thread ticks while somebody subscribes. It reads the memory
statistics of a device that is in use already and never brings one in: without
``torch.hpu``, or before its first use, it records nothing.

Nothing here imports torch; a loaded torch is found through ``sys.modules``.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

IDLE_RATE = 2.0
FIT_RATE = 10.0
HIGHEST_RATE = 50.0
CAPACITY = 3600
MEMORY = "memory"


class RingBuffer:
    """A fixed number of rows of floats; the oldest row gives way to the newest.

    Parameters
    ----------
    columns
        Names of the columns.
    capacity
        Rows kept, at least 1.
    """

    def __init__(self, columns: Iterable[str], capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"a ring buffer keeps at least 1 row, not {capacity}")
        self.columns = tuple(columns)
        self.capacity = capacity
        self.written = 0
        self._data = {name: array("d") for name in self.columns}  # grows up to the capacity

    def __len__(self) -> int:
        return min(self.written, self.capacity)

    def append(self, *row: float) -> None:
        """Add one row, a value for each column in order."""
        if len(row) != len(self.columns):
            raise ValueError(f"a row of {self.columns} has {len(self.columns)} values: {row}")
        slot = self.written % self.capacity
        for name, value in zip(self.columns, row, strict=True):
            if self.written < self.capacity:
                self._data[name].append(value)
            else:
                self._data[name][slot] = value
        self.written += 1

    def since(self, cursor: int = 0) -> tuple[dict[str, list[float]], int]:
        """Return the rows written after ``cursor`` and the cursor for the next call.

        Rows that have been overwritten since are left out.
        """
        first = max(cursor, self.written - self.capacity)
        count = self.written - first
        start = first % self.capacity
        rows: dict[str, list[float]] = {}
        for name, data in self._data.items():
            head = data[start : start + count]
            rows[name] = list(head) + list(data[: count - len(head)])
        return rows, self.written

    def last(self) -> dict[str, float] | None:
        """Return the newest row, or None when there is none."""
        if not self.written:
            return None
        slot = (self.written - 1) % self.capacity
        return {name: data[slot] for name, data in self._data.items()}


@dataclass(frozen=True)
class Mark:
    """Something that happened at one moment: a compilation, an epoch, a stop."""

    time: float
    kind: str
    text: str


@dataclass(eq=False)
class Subscription:
    """One reader of the sampler; ``close()`` ends it."""

    sampler: Sampler
    callback: Callable[[Sampler], None] | None
    rate: float

    def close(self) -> None:
        """Stop calling back; the thread ends with the last subscription."""
        self.sampler._unsubscribe(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hpu_in_use() -> Any | None:
    """Return the ``torch.hpu`` module when this process has initialised it, else None."""
    hpu = sys.modules.get("torch.hpu") or getattr(sys.modules.get("torch"), "hpu", None)
    if hpu is None or not hpu.is_initialized():
        return None
    return hpu


def device_memory() -> dict[str, int] | None:
    """Return the documented memory statistics of the device in use.

    Returns
    -------
    dict or None
        ``torch.hpu.memory_stats()`` (bytes and counts), or None while this
        process has not initialised a device. Never initialises one.
    """
    hpu = _hpu_in_use()
    return None if hpu is None else dict(hpu.memory_stats())


def _compilations() -> tuple[int, float] | None:
    """Return graphs compiled so far and the microseconds they took, or None if not counted."""
    hpu = _hpu_in_use()
    metrics = sys.modules.get("habana_frameworks.torch.hpu.metrics")
    if hpu is None or metrics is None:
        return None
    metric = metrics.metric_global("graph_compilation")
    if metric is None:
        return None
    stats = dict(metric.stats())
    return int(stats.get("TotalNumber", 0)), float(stats.get("TotalTime", 0.0))


class Sampler:
    """Named series of fixed length, filled by one background thread and by others.

    Times are seconds of ``time.monotonic()``, memory is in bytes.

    Parameters
    ----------
    capacity
        Rows kept for each series.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._subscriptions: list[Subscription] = []
        self._thread: threading.Thread | None = None
        self._series: dict[str, RingBuffer] = {}
        self._marks: list[Mark] = []
        self._marks_written = 0
        self._compiled: tuple[int, float] | None = None

    # Writing

    def record(self, series: str, *, moment: float | None = None, **values: float) -> None:
        """Append one row to a series; its columns are those of its first row.

        Raises
        ------
        ValueError
            When the values are not those the series was begun with.
        """
        moment = time.monotonic() if moment is None else moment
        with self._lock:
            buffer = self._series.get(series)
            if buffer is None:
                buffer = RingBuffer(("time", *values), self.capacity)
                self._series[series] = buffer
            columns = buffer.columns[1:]
            if tuple(values) != columns:
                if set(values) != set(columns):
                    raise ValueError(
                        f"series {series!r} has the values {columns}, not {tuple(values)}"
                    )
                values = {name: values[name] for name in columns}
            buffer.append(moment, *values.values())

    def forget(self, series: str) -> None:
        """Drop a series; one of that name may then begin with other columns."""
        with self._lock:
            self._series.pop(series, None)

    def mark(self, kind: str, text: str, moment: float | None = None) -> None:
        """Note that something happened now, or at ``moment``."""
        entry = Mark(time.monotonic() if moment is None else moment, kind, text)
        with self._lock:
            self._marks.append(entry)
            self._marks_written += 1
            del self._marks[: -self.capacity]

    # Reading

    def read(self, series: str, cursor: int = 0) -> tuple[dict[str, list[float]], int]:
        """Return the rows of a series after ``cursor`` and the next cursor."""
        with self._lock:
            buffer = self._series.get(series)
            return ({}, cursor) if buffer is None else buffer.since(cursor)

    def last(self, series: str) -> dict[str, float] | None:
        """Return the newest row of a series, or None when it has none."""
        with self._lock:
            buffer = self._series.get(series)
            return None if buffer is None else buffer.last()

    def cursor(self, series: str) -> int:
        """Return the cursor after the newest row of a series, to read only what follows."""
        with self._lock:
            buffer = self._series.get(series)
            return 0 if buffer is None else buffer.written

    def marks(self, cursor: int = 0) -> tuple[list[Mark], int]:
        """Return the marks after ``cursor`` and the next cursor."""
        with self._lock:
            missed = self._marks_written - cursor
            return (self._marks[-missed:] if missed > 0 else []), self._marks_written

    # Ticking

    @property
    def running(self) -> bool:
        """Whether the background thread is alive."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    @property
    def rate(self) -> float:
        """Ticks a second: the highest that a subscriber asks for."""
        with self._lock:
            return max((s.rate for s in self._subscriptions), default=IDLE_RATE)

    def subscribe(
        self, callback: Callable[[Sampler], None] | None = None, rate: float = IDLE_RATE
    ) -> Subscription:
        """Call ``callback(sampler)`` from the sampler's thread at each tick.

        Parameters
        ----------
        callback
            What to call, or None for sampling alone. A callback that raises is
            logged and taken off; the others go on.
        rate
            Ticks a second, above 0 and at most 50.

        Raises
        ------
        ValueError
            When the rate is outside that range.
        """
        if not 0 < rate <= HIGHEST_RATE or not math.isfinite(rate):
            raise ValueError(
                f"a sampling rate is above 0 and at most {HIGHEST_RATE:g} a second, not {rate}"
            )
        subscription = Subscription(self, callback, rate)
        with self._lock:
            self._subscriptions.append(subscription)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hpu-sampler", daemon=True)
                self._thread.start()
        self._wake.set()
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
        self._wake.set()

    def sample(self) -> None:
        """Record the device's memory once, and a mark when graphs were compiled since."""
        stats = device_memory()
        if stats is None:
            return
        self.record(
            MEMORY,
            in_use=float(stats["InUse"]),
            peak=float(stats["MaxInUse"]),
            limit=float(stats["Limit"]),
        )
        compiled = _compilations()
        if compiled is not None:
            self._mark_compilations(compiled)

    def _mark_compilations(self, compiled: tuple[int, float]) -> None:
        before, self._compiled = self._compiled, compiled
        if before is None or compiled[0] <= before[0]:
            return
        graphs, seconds = compiled[0] - before[0], (compiled[1] - before[1]) / 1e6
        plural = "graph" if graphs == 1 else "graphs"
        self.mark("compilation", f"{graphs} {plural} compiled in {seconds:.2f} s")

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            with self._lock:
                subscriptions = list(self._subscriptions)
                if not subscriptions:
                    self._thread = None
                    return
            self._tick(subscriptions)
            due = max(due + 1 / self.rate, time.monotonic())
            self._wake.wait(due - time.monotonic())
            self._wake.clear()

    def _tick(self, subscriptions: list[Subscription]) -> None:
        try:
            self.sample()
        except RuntimeError:
            log.warning("device memory could not be read", exc_info=True)
        for subscription in subscriptions:
            if subscription.callback is None:
                continue
            try:
                subscription.callback(self)
            except Exception:
                log.exception("a panel failed and no longer updates")
                subscription.close()


_sampler = Sampler()


def sampler() -> Sampler:
    """Return the sampler of this process."""
    return _sampler
