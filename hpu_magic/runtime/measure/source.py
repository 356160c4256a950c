"""What a panel asks of whatever trains, be it a framework's fit or a plain loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from hpu_magic.runtime.measure.observation import FitSettings
from hpu_magic.runtime.measure.progress import FitProgress
from hpu_magic.runtime.measure.sampler import Sampler


@dataclass(frozen=True)
class Report:
    """Where a source tells how it goes.

    Attributes
    ----------
    sampler
        Receives the series of each curve of `progress`, ``speed`` (steps per second, and the
        step) and ``epochs`` (number, step, and expected length in steps).
    progress
        Kept up to date.
    stopped
        Set once Stop was pressed.
    interval
        Seconds between two reads of what was logged.
    polls
        To be called at each read from the training thread.
    """

    sampler: Sampler
    progress: FitProgress
    stopped: threading.Event
    interval: float = 0.1
    polls: Sequence[Callable[[], None]] = ()


class FitSource(Protocol):
    """One fit, to be observed once."""

    @property
    def kind(self) -> str:
        """What a headline calls it, such as ``Fit``."""

    @property
    def model_name(self) -> str:
        """What is trained."""

    @property
    def device(self) -> Any:
        """Where, a ``torch.device`` or its name."""

    @property
    def rank(self) -> int:
        """Which of the processes that fit together this one is."""

    @property
    def ranks(self) -> int:
        """How many there are."""

    @property
    def metrics(self) -> dict[str, float]:
        """What was logged, as it is now."""

    @property
    def settings(self) -> FitSettings:
        """How it is set up, as it is now."""

    def attached(self, report: Report) -> AbstractContextManager[None]:
        """Report the fit that runs inside the block, and leave nothing behind after it."""

    def stop(self) -> None:
        """End the fit as soon as it can; called from any thread once `Report.stopped` is set."""

    def interrupted(self, error: BaseException) -> bool:
        """Tell whether what left the fit is a person's interrupt."""
