"""What every view of a fit is handed: where the fit stands, and what is new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Protocol

from hpu_magic import units
from hpu_magic.panels.header import header
from hpu_magic.panels.record import News, RunRecord
from hpu_magic.panels.result import FitResult
from hpu_magic.runtime.measure.progress import FitProgress

__all__ = ["FitView", "Head"]

_BROKEN_NAMED = 2


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
    """

    word: str
    model_name: str
    where: str
    details: tuple[str, ...]
    share: float | None
    broken: str

    @classmethod
    def of(cls, progress: FitProgress, model_name: str, device_label: str) -> Head:
        """Describe a fit as it is now."""
        details = [device_label]
        if (pace := progress.steps_per_second) is not None:
            details.insert(0, units.rate(pace))
        if (left := progress.remaining) is not None:
            rough = f"{max(1, round(left))} s" if left < 60 else units.duration(left)
            details.insert(1, f"about {rough} left")
        word = "Training" if progress.training_began is not None else "Starting"
        if progress.long_validation:
            word = "Validating"
        if progress.stopping:
            word = "Stopping"
        return cls(
            word,
            model_name,
            progress.where(short_validations=False),
            tuple(details),
            progress.share,
            ", ".join(one.brief for one in progress.not_finite[:_BROKEN_NAMED]),
        )

    @property
    def line(self) -> str:
        """All of it in one line."""
        parts = filter(None, [self.where, self.broken, *self.details])
        return f"{self.word} {self.model_name}: " + ", ".join(parts)

    @property
    def html(self) -> str:
        """All of it above a panel, with a bar."""
        headline = f"<b>{self.word}</b> {escape(self.model_name)}, {escape(self.where)}"
        return header(headline, ", ".join(self.details), self.share, self.broken)


class FitView(Protocol):
    """One place where a fit is seen; told by the sampler's thread, and finished by the fit's."""

    @property
    def poll(self) -> Callable[[], None] | None:
        """To be called from the training thread now and then; None where nothing waits for it."""

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Show where the fit stands and what is new."""

    def finish(self, result: FitResult) -> None:
        """Leave the result behind."""
