"""Observe the waits, compilations and settings of a fit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpu_magic.runtime.execution.mode import loaded_mode
from hpu_magic.runtime.measure.device_counts import DeviceCounts
from hpu_magic.runtime.measure.ledger import innermost
from hpu_magic.runtime.measure.ledger_report import LedgerReport

SETTLED = 3
"""Number of initial steps that may compile; later compilations are due to new shapes."""


@dataclass(frozen=True)
class LoaderSettings:
    """The settings of a ``DataLoader``."""

    workers: int
    pinned: bool
    persistent: bool
    """Whether worker processes are kept for the next epoch."""


@dataclass(frozen=True)
class FitSettings:
    """Known settings of a fit."""

    precision: str | None = None
    """The precision in Lightning's notation, such as ``bf16-mixed``."""
    accumulate: int | None = None
    """Number of batches per optimizer step."""
    optimizer: str | None = None
    """Class name of the optimizer."""
    loader: LoaderSettings | None = None
    framework: str | None = None
    """``lightning`` or ``transformers``; None for a plain loop."""
    deepspeed: Mapping[str, Any] | None = None
    """DeepSpeed's configuration, if it is known that the fit uses DeepSpeed."""


@dataclass(frozen=True)
class Observation:
    """The observations of one fit; counts are for the whole process during the fit."""

    device: str  # such as ``hpu:0``
    mode: str | None = None  # ``lazy`` or ``eager``; None without a card
    settings: FitSettings = field(default_factory=FitSettings)
    ranks: int = 1
    epochs: int = 0  # number of epochs that were started
    training_seconds: float = 0.0  # time spent on training, without validation
    waited_seconds: float | None = None
    """The part of `training_seconds` spent waiting for batches; None if it was not measured."""
    first_batches_seconds: float = 0.0  # part of `waited_seconds` for the first batch of each epoch
    counts: DeviceCounts = field(default_factory=DeviceCounts)  # compilations and fallbacks
    later: DeviceCounts = field(default_factory=DeviceCounts)
    """The part of `counts` recorded after the first `SETTLED` steps."""
    ledger: LedgerReport | None = None
    """The report of the ledger around the fit; it is complete once that ledger is closed."""
    peak: int | None = None
    limit: int | None = None
    """Device memory in bytes; None without a card."""

    @property
    def waited_share(self) -> float | None:
        """The fraction of the training time that was spent waiting for batches, from 0 to 1."""
        if self.waited_seconds is None or not self.training_seconds:
            return None
        return min(1.0, self.waited_seconds / self.training_seconds)


class Waiting:
    """A clock that runs while a batch is being requested.

    ``seconds`` is the total waiting time, and ``seconds_of_first`` is the part spent on the first
    batch of each epoch, which may start worker processes. ``batches`` is the number of requests,
    including the one that ends an epoch.
    """

    def __init__(self) -> None:
        self._started = 0.0
        self.reset()

    def reset(self) -> None:
        """Reset all values to 0."""
        self.seconds = self.seconds_of_first = 0.0
        self.batches = 0
        self._first = True

    def epoch_began(self) -> None:
        """Record that the next batch is the first one of its epoch."""
        self._first = True

    def start(self) -> None:
        """Start the clock when a batch is requested."""
        self._started = time.monotonic()

    def stop(self) -> None:
        """Stop the clock and count the batch."""
        waited = time.monotonic() - self._started
        self.seconds += waited
        self.batches += 1
        if self._first:
            self._first = False
            self.seconds_of_first += waited

    def iterator_created(self) -> None:
        """Add the time since `start`, which was spent creating the loader's iterator."""
        waited = time.monotonic() - self._started
        self.seconds += waited
        self.seconds_of_first += waited

    def over(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator over the batches that measures the waiting time."""
        return _Timed(batches, self)


class _Timed:
    def __init__(self, batches: Iterator[Any], clock: Waiting) -> None:
        self._batches, self._clock = batches, clock

    def __iter__(self) -> _Timed:
        return self

    def __next__(self) -> Any:
        self._clock.start()
        try:
            return next(self._batches)
        finally:
            self._clock.stop()


@dataclass
class Observer:
    """Monitors one fit from the training thread, reading the device's counts three times."""

    waiting: Waiting = field(default_factory=Waiting)  # measures the time spent waiting for batches
    epochs: int = 0  # number of epochs that were started
    _at_first: DeviceCounts | None = None
    _settled: DeviceCounts | None = None
    _at_last: DeviceCounts | None = None
    _ledger: LedgerReport | None = None

    def began(self) -> None:
        """Start counting."""
        self.waiting.reset()
        self.epochs = 0
        self._settled = self._at_last = None
        self._ledger = innermost()
        self._at_first = DeviceCounts.now()

    def epoch_began(self) -> None:
        """Record that the next batch is the first one of an epoch."""
        self.epochs += 1
        self.waiting.epoch_began()

    def settled(self) -> None:
        """Record the end of the first steps; only the first call has an effect."""
        if self._settled is None:
            self._settled = DeviceCounts.now()

    def ended(self) -> None:
        """Stop counting; only the first call has an effect."""
        if self._at_last is None:
            self._at_last = DeviceCounts.now()

    def observation(self, where: str, training_seconds: float, **others: Any) -> Observation:
        """Return the observations, with ``others`` as additional attributes."""
        # If there was no training, all counts are equal.
        at_first = self._at_first or DeviceCounts()
        at_last = self._at_last if self._at_first and self._at_last else at_first
        waiting = self.waiting
        return Observation(
            device=where,
            mode=loaded_mode() if where.startswith("hpu") else None,
            epochs=self.epochs,
            training_seconds=training_seconds,
            waited_seconds=waiting.seconds if waiting.batches else None,
            first_batches_seconds=waiting.seconds_of_first,
            counts=at_last.since(at_first),
            later=at_last.since(self._settled or at_last),
            ledger=self._ledger,
            **others,
        )


def loader_settings(loader: Any) -> LoaderSettings | None:
    """Return the settings of a loader, or of the first of several loaders with settings."""
    if isinstance(loader, Mapping):
        loader = list(loader.values())
    if isinstance(loader, list | tuple):
        return next(filter(None, map(loader_settings, loader)), None)
    workers = getattr(loader, "num_workers", None)
    if not isinstance(workers, int):
        return None
    return LoaderSettings(
        workers,
        bool(getattr(loader, "pin_memory", False)),
        bool(getattr(loader, "persistent_workers", False)),
    )


def optimizer_name(optimizers: Any) -> str | None:
    """Return an optimizer's class name, ignoring any wrapper; of several, use the first one."""
    several = list(optimizers) if isinstance(optimizers, Iterable) else [optimizers]
    if not several or several[0] is None:
        return None
    inner = getattr(several[0], "optimizer", several[0])
    return type(inner).__name__
