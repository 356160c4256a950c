"""The data that every view of a fit receives: the state of the fit in words, and new samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Protocol

from hpu_magic.panels.header import header
from hpu_magic.panels.record import News, RunRecord

DRAW_SECONDS = 0.5
"""Seconds between two drawings of a panel.

Each drawing wakes the kernel's sending threads, the server and the browser. This costs the training
about 1.5 ms on two cores, for any amount of data.
"""

STOPPING = "Stopping"


@dataclass(frozen=True)
class Head:
    """The state of a fit, in words.

    Attributes
    ----------
    word
        The activity, such as ``Training``.
    model_name
        Name of the model.
    where
        The position in the fit, for example ``epoch 3 of 10, batch 40 of 57``.
    details
        Pace, remaining time and device, as far as they are known.
    share
        Completed share of the plan, from 0 to 1; None if the end is not known.
    not_finite
        The values that became NaN or infinite; empty if there are none.
    values
        The newest value of each metric that is on the progress bar or has a chart.
    endless_for
        Seconds that a fit without a known end has run; else None.
    """

    word: str
    model_name: str
    where: str
    details: tuple[str, ...]
    share: float | None
    not_finite: str
    values: tuple[str, ...] = ()
    endless_for: float | None = None

    @property
    def stopping(self) -> bool:
        """Whether Stop was pressed, here or elsewhere."""
        return self.word == STOPPING

    @property
    def line(self) -> str:
        """The state in one line of text."""
        *pace, device = self.details
        parts = filter(None, [self.where, self.not_finite, *pace, *self.values, device])
        return f"{self.word} {self.model_name}: " + ", ".join(parts)

    @property
    def html(self) -> str:
        """The header of a panel, with a progress bar."""
        headline = f"<b>{self.word}</b> {escape(self.model_name)}, {escape(self.where)}"
        return header(
            headline,
            ", ".join(self.details),
            self.share,
            self.not_finite,
            values=", ".join(self.values),
            endless_for=self.endless_for,
        )


class FitView(Protocol):
    """One display of a fit; the sampler's thread draws it, and the fit's thread finishes it."""

    @property
    def poll(self) -> Callable[[], None] | None:
        """Function for the training thread to call from time to time; None if it is not needed."""

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Draw the state of the fit and its new samples."""

    def finish(self, table: Mapping[str, str], picture: Mapping[str, str]) -> None:
        """Replace the display by the result: the MIME bundles of a table and of a picture."""
