"""The interface for views of a fit, which show a description of its state and its new samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Protocol

from hpu_magic.panels.header import header
from hpu_magic.panels.record import News, RunRecord

DRAW_SECONDS = 0.5
"""Seconds between two redraws of a panel.

Each redraw wakes up the kernel's sending threads, the server and the browser. On two cores, this
slows training down by about 1.5 ms, regardless of the amount of data.
"""

STOPPING = "Stopping"


@dataclass(frozen=True)
class Head:
    """A description of the state of a fit."""

    word: str  # the current activity, such as Training
    model_name: str
    where: str  # the position in the fit, such as epoch 3 of 10, batch 40 of 57
    details: tuple[str, ...]  # pace, remaining time and device, if known
    share: float | None  # completed share of the plan, from 0 to 1; None if the end is unknown
    not_finite: str  # values that became NaN or infinite
    values: tuple[str, ...] = ()  # values of metrics that are on the progress bar or have a chart
    endless_for: float | None = None  # seconds that a fit without a known end has been running

    @property
    def stopping(self) -> bool:
        """Whether Stop has been pressed, in this view or elsewhere."""
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
    """A display of a fit, drawn by the sampler's thread and finalized by the fit's thread."""

    @property
    def poll(self) -> Callable[[], None] | None:
        """The function that the training thread must call from time to time, or None."""

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Draw the state of the fit and its new samples."""

    def finish(self, table: Mapping[str, str], picture: Mapping[str, str]) -> None:
        """Replace the display with the result: the MIME bundles of a table and a picture."""
