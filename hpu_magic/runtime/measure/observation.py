"""What a fit showed of itself besides its curves: waiting, compilations, how it was set up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpu_magic.runtime.execution.mode import loaded_mode
from hpu_magic.runtime.measure.device_counts import DeviceCounts
from hpu_magic.runtime.measure.ledger import innermost
from hpu_magic.runtime.measure.ledger_report import LedgerReport
from hpu_magic.runtime.measure.waiting import Waiting

SETTLED = 3
"""Steps after which a fit has met what it meets again; what is compiled later is a new shape."""


@dataclass(frozen=True)
class LoaderSettings:
    """How a ``DataLoader`` loads."""

    workers: int
    pinned: bool
    persistent: bool
    """Worker processes stay from one epoch to the next."""


@dataclass(frozen=True)
class FitSettings:
    """How a fit was set up, as far as what trains tells."""

    precision: str | None = None
    """In Lightning's words, such as ``bf16-mixed``."""
    accumulate: int | None = None
    """Batches in a step of the optimizer."""
    optimizer: str | None = None
    """Name of its class."""
    loader: LoaderSettings | None = None
    framework: str | None = None
    """``lightning`` or ``transformers``; None for a plain loop."""


@dataclass(frozen=True)
class Observation:
    """What was seen of one fit; counts are those of the process in its time.

    Attributes
    ----------
    device : str
        Where it trained, such as ``hpu:0``.
    mode : str or None
        ``lazy`` or ``eager``; None where no card was used.
    settings : FitSettings
        How it was set up.
    ranks : int
        Processes that trained together.
    epochs : int
        Epochs begun.
    training_seconds : float
        Without validation.
    waited_seconds : float or None
        Of these, how long training waited for batches; None where that was not measured.
    first_batches_seconds : float
        Of these, for the first batch of each epoch.
    counts : DeviceCounts
        Compilations and calls on the CPU.
    later : DeviceCounts
        Of these, after the first `SETTLED` steps; all of them are earlier where it was too short.
    ledger : LedgerReport or None
        What the ledger that was open around the fit has; complete once that one ends.
    peak_memory, memory_limit : int or None
        Bytes; None where no card was used.
    """

    device: str
    mode: str | None = None
    settings: FitSettings = field(default_factory=FitSettings)
    ranks: int = 1
    epochs: int = 0
    training_seconds: float = 0.0
    waited_seconds: float | None = None
    first_batches_seconds: float = 0.0
    counts: DeviceCounts = field(default_factory=DeviceCounts)
    later: DeviceCounts = field(default_factory=DeviceCounts)
    ledger: LedgerReport | None = None
    peak_memory: int | None = None
    memory_limit: int | None = None

    @property
    def waited_share(self) -> float | None:
        """Share of the training's time that went by waiting for batches, 0 to 1."""
        if self.waited_seconds is None or not self.training_seconds:
            return None
        return min(1.0, self.waited_seconds / self.training_seconds)


@dataclass
class Observer:
    """Observes one fit, from the thread that trains; it looks at the device three times.

    Attributes
    ----------
    waiting : Waiting
        Runs while what trains asks for a batch.
    epochs : int
        Epochs begun.
    """

    waiting: Waiting = field(default_factory=Waiting)
    epochs: int = 0
    _at_first: DeviceCounts | None = None
    _settled: DeviceCounts | None = None
    _at_last: DeviceCounts | None = None
    _ledger: LedgerReport | None = None

    def began(self) -> None:
        """Count from here."""
        self.waiting.reset()
        self.epochs = 0
        self._settled = self._at_last = None
        self._ledger = innermost()
        self._at_first = DeviceCounts.now()

    def epoch_began(self) -> None:
        """Note that the next batch is the first of an epoch."""
        self.epochs += 1
        self.waiting.epoch_began()

    def settled(self) -> None:
        """Note that the first steps are over; only the first call counts."""
        if self._settled is None:
            self._settled = DeviceCounts.now()

    def ended(self) -> None:
        """Count up to here; only the first call counts."""
        if self._at_last is None:
            self._at_last = DeviceCounts.now()

    def observation(self, where: str, training_seconds: float, **told: Any) -> Observation:
        """Return what was seen; ``told`` is what others know, by the names of the attributes."""
        # All the same where nothing was trained.
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
            **told,
        )


def loader_settings(loader: Any) -> LoaderSettings | None:
    """Return how a loader loads, the first that tells of several; None where none does."""
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
    """Return the class of an optimizer, the first of several, below what wraps it."""
    several = list(optimizers) if isinstance(optimizers, Iterable) else [optimizers]
    if not several or several[0] is None:
        return None
    inner = getattr(several[0], "optimizer", several[0])
    return type(inner).__name__
