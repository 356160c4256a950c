"""A table of all cards, with as many columns as fit in the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpu_magic import sessions, units
from hpu_magic.holders import Holder
from hpu_magic.monitor.reading import CardReading, Snapshot
from hpu_magic.monitor.top.cells import clipped, padded, width
from hpu_magic.plain_text import printable

ORDERS = ("card", "memory", "busy", "idle", "pid", "name")
"""Columns by which the cards can be sorted."""

_BAR = 10  # characters
_GAP = "  "
_GOOD_NAME, _SHORTEST_NAME = 24, 12
_NONE = "-"
_HELD_BY = "held by"

# If the terminal is narrow, these columns are dropped in this order until the name column reaches
# the given width. The card, PID and name columns are always shown.
_DROPPED = {
    **dict.fromkeys(("clock", "power", "bar", "temp", "user", "model"), _GOOD_NAME),
    **dict.fromkeys(("memory", "busy", "idle", "full", "fit"), _SHORTEST_NAME),
}
# These columns are hidden if no card has a value for them.
_OPTIONAL = {"bar", "full", "busy", "temp", "power", "clock", "user", "idle", "fit"}
_RIGHT = {"full", "busy", "temp", "power", "clock", "pid"}


class TableLine(NamedTuple):
    """A line of the table together with the module ID of its card."""

    text: str
    card: int | None = None


@dataclass(frozen=True)
class Order:
    """The sort order of the cards: one of `ORDERS`, possibly reversed.

    For memory, utilization and idle time, the highest value comes first.
    """

    by: str = "card"
    reverse: bool = False

    def sort(self, cards: Sequence[CardReading]) -> list[CardReading]:
        """Return the cards in order; cards without a value come last."""
        key = _KEYS[self.by]
        known = [card for card in cards if key(card) is not None]
        unknown = [card for card in cards if key(card) is None]
        descending = (self.by in ("memory", "busy", "idle")) != self.reverse
        # Sort cards with equal values by number.
        known.sort(key=lambda card: card.module_id)
        return sorted(known, key=key, reverse=descending) + unknown  # type: ignore[arg-type]


def table(
    snapshot: Snapshot, room: int | None = None, order: Order = Order(), shift: int = 0
) -> list[TableLine]:
    """Return the lines of a table of all cards; a dash represents a missing value.

    `room` is the number of cells per line; None means no limit. `shift` is the number of characters
    to remove from the start of each name.
    """
    if not snapshot.cards:
        return _remark(f"No Gaudi cards to show: {snapshot.reason}", room)
    cards = order.sort(snapshot.cards)
    rows = [(card.module_id, row) for card in cards for row in _rows(card, shift)]
    shown = _columns([row for _, row in rows], room)
    lines = [TableLine(_joined({name: name for name, _ in shown}, shown))]
    lines += [TableLine(_joined(row, shown), module) for module, row in rows]
    return lines + (_remark(snapshot.reason, room) if snapshot.reason else [])


def headline(snapshot: Snapshot) -> str:
    """Return a summary of the machine, such as ``8 simulated GAUDI2 cards, 2 in use``."""
    cards = snapshot.cards
    names = {card.name for card in cards if card.name}
    words = [str(len(cards))]
    words += ["simulated"] if cards and all(card.simulated for card in cards) else []
    words += [*names] if len(names) == 1 else ["Gaudi"]
    words.append("card" if len(cards) == 1 else "cards")
    return f"{' '.join(words)}, {sum(bool(card.holders) for card in cards) or 'none'} in use"


def figures(card: CardReading) -> dict[str, str]:
    """Return the values of a card as text, keyed by column name."""
    memory = full = bar = _NONE
    if card.memory_used is not None and card.memory_total:
        share = min(card.memory_used / card.memory_total, 1.0)
        memory = units.usage(card.memory_used, card.memory_total)
        full, bar = f"{share:.0%}", f"[{'#' * round(share * _BAR):.<{_BAR}}]"
    return {
        "card": card.label,
        "model": card.name or _NONE,
        "memory": memory,
        "full": full,
        "bar": bar,
        "busy": _measured(card.utilization, "%"),
        "temp": _measured(card.temperature, "°C"),
        "power": _measured(card.power, "W"),
        "clock": _measured(card.clock, "MHz"),
    }


def idleness(holder: Holder) -> str:
    """Format a session's idle time for its column, such as ``2 h``."""
    return sessions.activity(holder.idle).removeprefix("idle for ") or _NONE


def _rows(card: CardReading, shift: int) -> list[dict[str, str]]:
    holders = [
        {
            "pid": str(holder.pid or _NONE),
            "user": holder.user or _NONE,
            "idle": idleness(holder),
            "fit": printable(holder.fit.brief().removesuffix(" left")) if holder.fit else _NONE,
            _HELD_BY: printable(holder.command)[shift:],
        }
        for holder in card.holders
    ] or [{_HELD_BY: _NONE, "pid": _NONE}]
    if card.error:
        unknown = {_HELD_BY: printable(f"unknown: {card.error}")[shift:]}
        holders = [*(holders if card.holders else []), unknown]
    first = {name: printable(text) for name, text in figures(card).items()}
    return [{**first, **holders[0]}, *holders[1:]]


def _columns(rows: Sequence[dict[str, str]], room: int | None) -> list[tuple[str, int]]:
    """Return the columns that fit, with their widths in cells."""
    names = [*figures(_BLANK), "pid", "user", "idle", "fit", _HELD_BY]
    names = [
        name
        for name in names
        if name not in _OPTIONAL or any(row.get(name, _NONE) != _NONE for row in rows)
    ]
    widths = {name: max(width(text) for text in _texts(name, rows)) for name in names}
    if room is None:
        return [(name, widths[name]) for name in names]

    def rest() -> int:
        return room - sum(widths[name] + len(_GAP) for name in names if name != _HELD_BY)

    for name, length in _DROPPED.items():
        if name in names and rest() < min(widths[_HELD_BY], length):
            names.remove(name)
    widths[_HELD_BY] = max(1, min(widths[_HELD_BY], rest()))
    return [(name, widths[name]) for name in names]


def _texts(name: str, rows: Sequence[dict[str, str]]) -> list[str]:
    return [_heading(name), *(row.get(name, "") for row in rows)]


def _joined(row: dict[str, str], columns: Sequence[tuple[str, int]]) -> str:
    heading = row.get(_HELD_BY) == _HELD_BY
    texts = (
        padded(_heading(name) if heading else row.get(name, ""), room, right=name in _RIGHT)
        for name, room in columns
    )
    return _GAP.join(texts).rstrip()


def _heading(name: str) -> str:
    return "" if name == "bar" else name


def _remark(text: str, room: int | None) -> list[TableLine]:
    lines = textwrap.wrap(printable(text), max(room, 10)) if room else [printable(text)]
    return [TableLine(clipped(line, room) if room else line) for line in lines]


def _measured(value: float | None, unit: str) -> str:
    return _NONE if value is None else f"{value:.0f} {unit}"


def _of_holders(value: Callable[[Holder], object]) -> Callable[[CardReading], object]:
    def key(card: CardReading) -> object:
        values = [each for each in map(value, card.holders) if each is not None]
        return min(values) if values else None  # type: ignore[type-var]

    return key


_BLANK = CardReading(0, 0, "", None, False, None, None)
_KEYS: dict[str, Callable[[CardReading], object]] = {
    "card": lambda card: card.module_id,
    "memory": lambda card: card.memory_used,
    "busy": lambda card: card.utilization,
    # A card is only as idle as its most active holder.
    "idle": _of_holders(lambda holder: holder.idle),
    "pid": _of_holders(lambda holder: holder.pid or None),
    "name": _of_holders(lambda holder: holder.command.lower()),
}
