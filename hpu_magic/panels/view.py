"""What every view of a fit is handed: where the fit stands, and what is new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

from hpu_magic import units
from hpu_magic.panels.header import header
from hpu_magic.panels.metric_chart import number
from hpu_magic.panels.record import News, RunRecord
from hpu_magic.panels.result import FitResult
from hpu_magic.runtime.measure.curves import Curves
from hpu_magic.runtime.measure.not_finite import NotFinite
from hpu_magic.runtime.measure.progress import FitProgress

_BROKEN_NAMED = 2
_VALUES_TOLD = 10
_STOPPING = "Stopping"


@dataclass(frozen=True)
class Head:
    """Where a fit stands, in words.

    Attributes
    ----------
    word
        What it does, such as ``Training``.
    model_name
        What is trained.
    where
        The place in the fit, for example ``epoch 3 of 10, batch 40 of 57``.
    details
        Pace, time left and device, as far as they are known.
    share
        How much of the plan is done, from 0 to 1; None where the end is not known.
    broken
        What became NaN or infinite; empty where nothing did.
    values
        The newest value of each metric that is on the progress bar or has a chart.
    endless_for
        Seconds that a fit has gone on of which nobody knows when it ends; else None.
    """

    word: str
    model_name: str
    where: str
    details: tuple[str, ...]
    share: float | None
    broken: str
    values: tuple[str, ...] = ()
    endless_for: float | None = None

    @classmethod
    def of(
        cls,
        progress: FitProgress,
        model_name: str,
        device_label: str,
        *,
        stopping: bool = False,
    ) -> Head:
        """Describe a fit as it is now; one that was asked to stop hears of it after its batch."""
        details = [device_label]
        if (pace := progress.steps_per_second) is not None:
            details.insert(0, units.rate(pace))
        if (left := progress.remaining) is not None:
            details.insert(1, f"about {units.rough(left)} left")
        word = "Training" if progress.training_began is not None else "Starting"
        if progress.long_validation:
            word = "Validating"
        if stopping or progress.stopping:
            word = _STOPPING
        return cls(
            word,
            model_name,
            progress.where(short_validations=False),
            tuple(details),
            progress.share,
            what_broke(progress.not_finite),
            _values(progress.curves),
            progress.seconds if progress.endless else None,
        )

    @property
    def stopping(self) -> bool:
        """Whether Stop has been pressed, wherever that was."""
        return self.word == _STOPPING

    @property
    def line(self) -> str:
        """All of it in one line."""
        *pace, device = self.details
        parts = filter(None, [self.where, self.broken, *pace, *self.values, device])
        return f"{self.word} {self.model_name}: " + ", ".join(parts)

    @property
    def html(self) -> str:
        """All of it above a panel, with a bar."""
        headline = f"<b>{self.word}</b> {escape(self.model_name)}, {escape(self.where)}"
        return header(
            headline,
            ", ".join(self.details),
            self.share,
            self.broken,
            values=", ".join(self.values),
            endless_for=self.endless_for,
        )


def what_broke(noted: Sequence[NotFinite]) -> str:
    """Name what became NaN or infinite: what stayed so comes first."""
    ordered = sorted(noted, key=lambda one: not one.lasting)
    more = len(ordered) - _BROKEN_NAMED
    named = ", ".join(one.brief for one in ordered[:_BROKEN_NAMED])
    return f"{named} and {more} more" if more > 0 else named


def _values(curves: Curves) -> tuple[str, ...]:
    shown = [(one.name, one.last) for one in curves.shown if one.last is not None]
    told = [f"{name} {number(last.value)}" for name, last in shown[:_VALUES_TOLD]]
    more = len(shown) - _VALUES_TOLD
    if more > 0:
        told.append(f"{more} more")
    if curves.unfollowed:
        told.append(f"{len(curves.unfollowed)} further ones are not followed")
    return tuple(told)


class FitView(Protocol):
    """One place where a fit is seen; told by the sampler's thread, and finished by the fit's."""

    @property
    def poll(self) -> Callable[[], None] | None:
        """To be called from the training thread now and then; None where nothing waits for it."""

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Show where the fit stands and what is new."""

    def finish(self, result: FitResult) -> None:
        """Leave the result behind."""
