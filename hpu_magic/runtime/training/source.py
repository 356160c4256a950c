"""The interface between a panel and the source of a fit, which is a framework or a plain loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from hpu_magic.runtime.training.observation import FitSettings
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Sampler


@dataclass(frozen=True)
class FitReport:
    """The objects through which a source reports on a fit."""

    sampler: Sampler
    """Receives one series for each curve of `progress`, the series ``speed`` (steps per second and
    the step), and the series ``epochs`` (number, step, and expected length in steps)."""
    progress: FitProgress  # the state of the fit
    stopped: threading.Event  # set when the Stop button is pressed
    interval: float  # time between two reads of the logged values, in seconds
    polls: Sequence[Callable[[], None]] = ()
    """Functions that the training thread calls on each read."""


class FitSource(Protocol):
    """A fit that can be observed only once."""

    @property
    def kind(self) -> str:
        """The name used in the headline, such as ``Fit``."""

    @property
    def model_name(self) -> str:
        """Name of the model."""

    @property
    def device(self) -> Any:
        """The device, as a ``torch.device`` or its name."""

    @property
    def rank(self) -> int:
        """Rank of this process in the fit."""

    @property
    def ranks(self) -> int:
        """Number of processes in the fit."""

    @property
    def metrics(self) -> dict[str, float]:
        """Current values of logged metrics."""

    @property
    def settings(self) -> FitSettings:
        """Current settings of the fit."""

    def attached(self, report: FitReport) -> AbstractContextManager[None]:
        """Report on the fit that runs inside the block, and remove all hooks afterwards."""

    def stop(self) -> None:
        """Request that the fit end; any thread may call this after setting `FitReport.stopped`."""

    def interrupted(self, error: BaseException) -> bool:
        """Return whether an error in the fit was caused by a user interrupt."""
