"""A table of the ranks of a parallel run: each card's memory, the pace, and the slowest rank.

The table is an ordinary output that is updated in place, so a saved or exported notebook contains
its last state.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from hpu_magic import units
from hpu_magic.runtime.present.bars import BAR, MARK
from hpu_magic.runtime.present.table import Table
from hpu_magic.runtime.training.ranks import RankState, slowest

AFTER = 1.0
"""Seconds from the start of a run until its table appears."""

_EVERY = 0.5
_WIDTH = 160  # width of a full card's bar, in pixels
_CELL = "text-align:left;padding:2px 14px 2px 0;white-space:nowrap"
_LABEL = f"{_CELL};font-weight:normal;opacity:.75"


class RankTable(Table):
    """The states of the ranks, in rank order."""

    def __init__(self, states: Sequence[RankState]) -> None:
        self.states = list(states)
        self.slowest = slowest(self.states)

    def title(self) -> str:
        """Return the headline."""
        return f"{len(self.states)} rank{'s' if len(self.states) > 1 else ''}"

    def columns(self) -> Sequence[str]:
        """Return the names of the columns that contain values."""
        names = ["rank"]
        if len({state.host for state in self.states}) > 1:
            names.append("host")
        names += ["card", "memory", "peak"]
        if any(state.steps for state in self.states):
            names.append("steps")
        if any(state.steps_per_second for state in self.states):
            names += ["pace", "own part of a step"]
        if any(state.card_step for state in self.states):
            names.append("card time of a step")
        return names

    def lines(self) -> Sequence[Sequence[str]]:
        """Return a row for each rank."""
        columns = self.columns()
        return [[self._text(state)[name] for name in columns] for state in self.states]

    def notes(self) -> Sequence[str]:
        """Return a sentence about the slowest rank."""
        if self.slowest is None:
            return ()
        return (
            f"Rank {self.slowest.rank} is the slowest: its steps take the longest outside of the "
            "backward pass, where ranks wait for each other.",
        )

    def _text(self, state: RankState) -> dict[str, str]:
        pace, own = state.steps_per_second, state.own_seconds
        return {
            "rank": str(state.rank),
            "host": state.host,
            "card": "none" if state.card is None else f"HPU {state.card}",
            "memory": _memory(state),
            "peak": "" if state.peak is None else units.size(state.peak),
            "steps": f"{state.steps:,}",
            "pace": "" if pace is None else units.rate(pace),
            "own part of a step": ("" if own is None else units.duration(own))
            + ("  slowest" if state is self.slowest else ""),
            "card time of a step": "" if state.card_step is None else state.card_step.text(),
        }

    def _repr_html_(self) -> str:
        columns = self.columns()
        head = "".join(f'<th style="{_LABEL}">{escape(name)}</th>' for name in columns)
        body = "".join(f"<tr>{self._row(state, columns)}</tr>" for state in self.states)
        notes = "".join(f"<div>{escape(note)}</div>" for note in self.notes())
        return (
            f"<div><b>{escape(self.title())}</b></div>"
            f'<table style="font-variant-numeric:tabular-nums"><tr>{head}</tr>{body}</table>{notes}'
        )

    def _row(self, state: RankState, columns: Sequence[str]) -> str:
        text = self._text(state)
        cells = []
        for name in columns:
            shown = escape(text[name]).replace("slowest", "<b>slowest</b>")
            if name == "memory":
                shown = f"{_bar(state)}{shown}"
            cells.append(f'<td style="{_CELL}">{shown}</td>')
        return "".join(cells)


def _memory(state: RankState) -> str:
    if state.in_use is None or state.limit is None:
        return "no card in use"
    return f"{units.size(state.in_use)} of {units.size(state.limit)}"


def _bar(state: RankState) -> str:
    """Return a bar that shows the memory in use as a share of the card, with a mark at the peak."""
    if state.in_use is None or state.peak is None or not state.limit:
        return ""
    used = round(_WIDTH * min(1.0, state.in_use / state.limit))
    peak = round((_WIDTH - 2) * min(1.0, state.peak / state.limit))
    inside = (
        f'<span style="position:absolute;left:0;top:0;bottom:0;width:{used}px;'
        f'background:{BAR}"></span>'
        f'<span style="position:absolute;left:{peak}px;top:0;bottom:0;width:2px;'
        f'background:{MARK}"></span>'
    )
    return (
        f'<span style="position:relative;display:inline-block;width:{_WIDTH}px;height:10px;'
        f'margin-right:8px;background:rgba(127,127,127,.2)">{inside}</span>'
    )


class RanksView:
    """Draws the table below a notebook's running cell or, if ``live`` is false, only builds it."""

    def __init__(self, ranks: Sequence[RankState], live: bool) -> None:
        self._live = live
        self._has_news = False
        self._states = {state.rank: state for state in ranks}
        self._place: Any = None
        self._began = time.monotonic()
        self._due = self._began + AFTER

    @property
    def table(self) -> RankTable | None:
        """The last state of all ranks, or None if no rank has used a card or completed a step."""
        return RankTable(list(self._states.values())) if self._has_news else None

    def update(self, states: Mapping[int, RankState]) -> None:
        """Store the latest states of ranks, and draw them if a redraw is due."""
        for rank, state in states.items():
            self._has_news |= state.in_use is not None or state.steps > 0
            self._states[rank] = _completed(state, self._states[rank])
        now = time.monotonic()
        if self._live and now >= self._due and self._has_news:
            self._due = now + _EVERY
            self._draw()

    def finish(self, states: Mapping[int, RankState]) -> None:
        """Draw the last state."""
        self.update(states)
        if self._place is not None:
            self._draw()

    def _draw(self) -> None:
        from IPython.core.display_functions import display

        if self._place is None:
            self._place = display(self.table, display_id=True)
        else:
            self._place.update(self.table)


def _completed(state: RankState, before: RankState) -> RankState:
    """Return the state, with the previous pace if no further step has been completed."""
    if state.steps_per_second is not None or state.steps != before.steps:
        return state
    return dataclasses.replace(
        state, steps_per_second=before.steps_per_second, own_seconds=before.own_seconds
    )
