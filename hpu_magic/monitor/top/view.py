"""The command's pages and key bindings."""

from __future__ import annotations

import time
from dataclasses import replace

from hpu_magic.monitor.reading import Snapshot
from hpu_magic.monitor.top.card import MemoryHistory, page
from hpu_magic.monitor.top.cells import clipped, padded, width
from hpu_magic.monitor.top.screen import Styled
from hpu_magic.monitor.top.table import ORDERS, Order, TableLine, headline, table

_SHIFT = 8  # characters
_HELP = (
    ("q", "quit; Esc closes a page, then quits"),
    ("↑ ↓", "select a card; Home and End select the first and last"),
    ("Enter", "show the selected card; 0 to 9 show a card directly"),
    ("← →", "scroll long names"),
    (", .", "sort by the previous or next column; also < and >"),
    ("r", "reverse the order"),
    ("h ?", "show this page; any key closes it"),
)


class View:
    """The command's pages: all cards, a single card, and the help page.

    `order` is the initial sort order. `card` is the card to show initially; None shows all cards.
    """

    def __init__(self, order: Order, card: int | None = None) -> None:
        self.order = order
        self.history = MemoryHistory()
        self._snapshot: Snapshot | None = None
        self._only = self._chosen = card
        self._help = False
        self._shift = 0
        self._top = 0

    def show(self, snapshot: Snapshot) -> None:
        """Display a new sample."""
        self._snapshot = snapshot
        self.history.add(snapshot)

    def press(self, key: str) -> bool:
        """Handle a key press; return False if the program should exit."""
        if key in ("q", "Q"):
            return False
        if self._help:
            self._help = False
        elif key in ("h", "H", "?"):
            self._help = True
        elif key == "escape":
            if self._only is None:
                return False
            self._only = None
        elif key == "enter":
            self._only = self._chosen if self._only is None else None
        elif key.isdigit() and int(key) in self._numbers():
            self._only = self._chosen = int(key)
        elif key in ("up", "down", "home", "end", "page up", "page down"):
            self._choose(key)
        elif key in ("left", "right"):
            self._shift = max(0, self._shift + (_SHIFT if key == "right" else -_SHIFT))
        elif key in (",", "<", ".", ">"):
            step = 1 if key in (".", ">") else -1
            place = (ORDERS.index(self.order.by) + step) % len(ORDERS)
            self.order = replace(self.order, by=ORDERS[place])
        elif key in ("r", "R"):
            self.order = replace(self.order, reverse=not self.order.reverse)
        return True

    def lines(self, columns: int, rows: int, *, keys: bool = True) -> list[Styled]:
        """Return the lines for a terminal of the given size; `keys` is False without a keyboard."""
        if self._snapshot is None:
            head, body = "", [("Looking for cards …", "")]
        else:
            head, body = headline(self._snapshot), self._body(self._snapshot, columns, rows - 3)
        title = f"hpu-magic top  {head}"
        title = padded(title if width(title) <= columns else head, columns)
        clock = time.strftime("%H:%M:%S")
        if width(title.rstrip()) + len(clock) < columns:
            title = title[: columns - len(clock)] + clock
        shown = [(title, "bold"), ("", ""), *body[: max(rows - 3, 1)]]
        shown += [("", "")] * (rows - len(shown) - 1)
        shown.append((self._foot(keys), ""))
        return [(clipped(text, columns), style) for text, style in shown[:rows]]

    def _body(self, snapshot: Snapshot, columns: int, room: int) -> list[Styled]:
        if self._help:
            return [(f"{keys:<7}{text}", "") for keys, text in _HELP]
        if self._only is not None:
            card = next((each for each in snapshot.cards if each.module_id == self._only), None)
            if card is None:
                return [(f"This machine has no HPU {self._only}.", "")]
            return [(line, "") for line in page(card, self.history, columns)]
        heading, *rows = table(snapshot, columns, self.order, self._shift)
        rows = rows[self._scroll(rows, room - 1) :]
        styled = [
            (padded(text, columns), "selected")
            if card is not None and card == self._chosen
            else (text, "")
            for text, card in rows
        ]
        return [(heading.text, "bold" if rows else ""), *styled]

    def _scroll(self, rows: list[TableLine], room: int) -> int:
        """Return the index of the first row to display so that the selected card is visible."""
        chosen = [at for at, row in enumerate(rows) if row.card == self._chosen is not None]
        if chosen:
            self._top = min(max(self._top, chosen[-1] - room + 1), chosen[0])
        self._top = max(0, min(self._top, len(rows) - room))
        return self._top

    def _choose(self, key: str) -> None:
        numbers = self._numbers()
        if not numbers:
            return
        last = len(numbers) - 1
        place = numbers.index(self._chosen) if self._chosen in numbers else None
        if key in ("home", "page up"):
            place = 0
        elif key in ("end", "page down"):
            place = last
        elif key == "down":
            place = 0 if place is None else min(place + 1, last)
        else:
            place = last if place is None else max(place - 1, 0)
        self._chosen = numbers[place]
        if self._only is not None:
            self._only = self._chosen

    def _numbers(self) -> list[int]:
        """Return the module IDs of the cards in the current order."""
        cards = self._snapshot.cards if self._snapshot else ()
        return [card.module_id for card in self.order.sort(cards)]

    def _foot(self, keys: bool) -> str:
        if not keys:
            return "Ctrl-C quits"
        by = f"{self.order.by}{', reversed' if self.order.reverse else ''}"
        if self._only is not None:
            return "q quit  h keys  Esc all cards  ↑↓ other cards"
        return f"q quit  h keys  ↑↓ Enter one card  , . by {by}"
