"""Time series of device memory and of recorded values, for all panels in a process.

A daemon thread ticks while there are subscriptions. The sampler reads the device memory only if the
process has a card, and never acquires one. This module does not import torch.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.device_counts import compilations

log = logging.getLogger(__name__)

IDLE_RATE = 2.0
HIGHEST_RATE = 50.0
CAPACITY = 3600
MEMORY = "memory"


class RingBuffer:
    """A fixed number of rows of floats, in which a new row replaces the oldest one."""

    def __init__(self, columns: Iterable[str], capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"The capacity of a ring buffer must be at least 1, got {capacity}.")
        self.columns = tuple(columns)
        self.capacity = capacity
        self.written = 0
        self._data = {name: array("d") for name in self.columns}  # grow up to the capacity

    def __len__(self) -> int:
        return min(self.written, self.capacity)

    def append(self, *row: float) -> None:
        """Add a row with the values for all columns, in order."""
        if len(row) != len(self.columns):
            raise ValueError(
                f"A row of {self.columns} must have {len(self.columns)} values, got {row}."
            )
        slot = self.written % self.capacity
        for name, value in zip(self.columns, row, strict=True):
            if self.written < self.capacity:
                self._data[name].append(value)
            else:
                self._data[name][slot] = value
        self.written += 1

    def since(self, cursor: int = 0) -> tuple[dict[str, list[float]], int]:
        """Return the rows written after ``cursor``, and the cursor for the next call.

        Rows that have already been replaced are omitted.
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
        """Return the newest row, or None if there is none."""
        if not self.written:
            return None
        slot = (self.written - 1) % self.capacity
        return {name: data[slot] for name, data in self._data.items()}


@dataclass(frozen=True)
class Mark:
    """An event, such as a compilation, an epoch or a stop."""

    time: float
    kind: str
    text: str


@dataclass(eq=False)
class Subscription:
    """A reader's subscription to the sampler; ``close()`` ends it."""

    sampler: Sampler
    callback: Callable[[Sampler], None] | None
    rate: float

    def close(self) -> None:
        """End the subscription; the thread exits when the last one ends."""
        self.sampler._unsubscribe(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sampler:
    """Named series of limited length, written by a background thread and by callers.

    Times are in seconds of ``time.monotonic()``, and memory is in bytes.
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
        """Append a row to a series; the first row of a series defines its columns."""
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
                        f"The series {series!r} has the values {columns}, got {tuple(values)}."
                    )
                values = {name: values[name] for name in columns}
            buffer.append(moment, *values.values())

    def forget(self, series: str) -> None:
        """Delete a series, so that a new one with the same name can have different columns."""
        with self._lock:
            self._series.pop(series, None)

    def mark(self, kind: str, text: str, moment: float | None = None) -> None:
        """Add an event at the current time, or at ``moment``."""
        entry = Mark(time.monotonic() if moment is None else moment, kind, text)
        with self._lock:
            self._marks.append(entry)
            self._marks_written += 1
            del self._marks[: -self.capacity]

    # Reading

    def read(self, series: str, cursor: int = 0) -> tuple[dict[str, list[float]], int]:
        """Return the rows of a series after ``cursor``, and the cursor for the next call."""
        with self._lock:
            buffer = self._series.get(series)
            return ({}, cursor) if buffer is None else buffer.since(cursor)

    def last(self, series: str) -> dict[str, float] | None:
        """Return the newest row of a series, or None if there is none."""
        with self._lock:
            buffer = self._series.get(series)
            return None if buffer is None else buffer.last()

    def cursor(self, series: str) -> int:
        """Return the cursor after the newest row of a series, for reading only later rows."""
        with self._lock:
            buffer = self._series.get(series)
            return 0 if buffer is None else buffer.written

    def marks(self, cursor: int = 0) -> tuple[list[Mark], int]:
        """Return the marks after ``cursor``, and the cursor for the next call."""
        with self._lock:
            missed = self._marks_written - cursor
            return (self._marks[-missed:] if missed > 0 else []), self._marks_written

    # Ticking

    @property
    def rate(self) -> float:
        """Ticks per second: the highest rate among all subscriptions."""
        with self._lock:
            return max((s.rate for s in self._subscriptions), default=IDLE_RATE)

    def subscribe(
        self, callback: Callable[[Sampler], None] | None = None, rate: float = IDLE_RATE
    ) -> Subscription:
        """Call ``callback(sampler)``, if passed, from the sampler's thread on each tick.

        If a callback raises an error, the error is logged and the subscription ends. Raises
        ValueError unless the rate, in ticks per second, is greater than 0 and at most 50.
        """
        if not 0 < rate <= HIGHEST_RATE or not math.isfinite(rate):
            raise ValueError(
                f"The sampling rate must be above 0 and at most {HIGHEST_RATE:g} per second, got "
                f"{rate}."
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
        """Record the device memory, and add a mark if graphs were compiled since the last call."""
        memory = device.memory()
        if memory is None:
            return
        self.record(MEMORY, **memory._asdict())
        graphs, seconds = compilations()
        before, self._compiled = self._compiled, (graphs, seconds)
        if before is not None and graphs > before[0]:
            graphs, seconds = graphs - before[0], seconds - before[1]
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
            log.warning("The device's counters could not be read.", exc_info=True)
        for subscription in subscriptions:
            if subscription.callback is None:
                continue
            try:
                subscription.callback(self)
            except Exception:
                log.exception("A panel failed and no longer updates.")
                subscription.close()


_sampler = Sampler()


def sampler() -> Sampler:
    """Return the sampler of this process."""
    return _sampler
