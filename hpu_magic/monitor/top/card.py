"""The page for a single card, with its current values, recent memory usage and holders."""

from __future__ import annotations

import textwrap
from collections import deque

from hpu_magic import sessions
from hpu_magic.monitor.reading import CardReading, Snapshot
from hpu_magic.monitor.top.table import figures
from hpu_magic.plain_text import printable
from hpu_magic.sessions import Fit

_KEPT = 1000  # samples
_STEPS = " ▁▂▃▄▅▆▇█"
_NARROW = 20
_JOINT = "  "


class MemoryHistory:
    """Recent memory usage of each card, drawn with one character per sample."""

    def __init__(self) -> None:
        self._shares: dict[int, deque[float | None]] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Add a sample."""
        for card in snapshot.cards:
            known = card.memory_used is not None and card.memory_total
            share = min(card.memory_used / card.memory_total, 1.0) if known else None  # type: ignore[operator]
            self._shares.setdefault(card.module_id, deque(maxlen=_KEPT)).append(share)

    def drawn(self, card: int, room: int) -> str:
        """Draw the most recent samples that fit, with a space for each unknown value."""
        shares = list(self._shares.get(card, ()))[-room:]
        return "".join(
            " " if share is None else _STEPS[1 + round(share * (len(_STEPS) - 2))]
            for share in shares
        )


def page(card: CardReading, history: MemoryHistory, room: int) -> list[str]:
    """Return the lines of a card's page."""
    room = max(room, _NARROW)
    known = figures(card)
    lines = [f"{card.label}  {known['model']}"]
    if card.memory_used is not None and card.memory_total:
        lines += [
            f"memory  {known['memory']}  {known['full']}",
            _bar(card.memory_used / card.memory_total, room),
            history.drawn(card.module_id, room),
        ]
    measured = [f"{name} {known[name]}" for name in ("busy", "temp", "power", "clock")]
    lines += textwrap.wrap(_JOINT.join(each for each in measured if not each.endswith(" -")), room)
    lines.append("")
    for holder in card.holders:
        who = (f"pid {holder.pid or 'unknown'}", holder.user, sessions.activity(holder.idle))
        lines += textwrap.wrap(_JOINT.join(filter(None, who)), room)
        command = textwrap.wrap(printable(holder.command), room - len(_JOINT))
        lines += [f"{_JOINT}{line}" for line in command + _fit(holder.fit, room - len(_JOINT))]
    if not card.holders and not card.error:
        lines.append("no visible holder")
    lines += textwrap.wrap(printable(card.error or ""), room)
    return lines


def _fit(fit: Fit | None, room: int) -> list[str]:
    if fit is None:
        return []
    bar = [] if fit.share is None else [_bar(fit.share, room)]
    return textwrap.wrap(printable(fit.described()), room) + bar


def _bar(share: float, room: int) -> str:
    return f"[{'#' * round(min(max(share, 0.0), 1.0) * (room - 2)):.<{room - 2}}]"
