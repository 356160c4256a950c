"""The interface of a fit's views: the state of the fit in words, and new samples."""

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
    """The state of a fit, in words."""

    word: str  # the activity, such as Training
    model_name: str
    where: str  # position in the fit, such as epoch 3 of 10, batch 40 of 57
    details: tuple[str, ...]  # pace, remaining time and device, if known
    share: float | None  # completed share of the plan, 0 to 1; None without a known end
    not_finite: str  # values that became NaN or infinite
    values: tuple[str, ...] = ()  # of metrics on the progress bar or with a chart
    endless_for: float | None = None  # seconds that a fit without a known end has run

    @property
    def stopping(self) -> bool:
        """Whether Stop was pressed, here or in another place."""
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
        """Function for the training thread to call from time to time, if necessary."""

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Draw the state of the fit and its new samples."""

    def finish(self, table: Mapping[str, str], picture: Mapping[str, str]) -> None:
        """Replace the display with the result: the MIME bundles of a table and of a picture."""
