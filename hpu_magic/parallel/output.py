"""The streamed output of ranks, grouped by rank.

In a notebook, all text is shown in a single output that is updated in place, under a heading for
each rank or group of ranks with the same text. A new output is created if the current one becomes
too long or a rank displays an image. In a terminal, each line is prefixed with its rank.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

SECONDS = 0.1
"""Time between updates, in seconds."""

_LONG, _LARGE = 400, 100_000  # lines, characters
_BREAKS = re.compile(r"(\r\n|\n|\r)")
_CURSOR = re.compile(r"\x1b\[\d*[A-HJKfsu]")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def named(ranks: Sequence[int]) -> str:
    """Return a name for ranks, such as ``rank 2``, ``ranks 0, 2 and 3`` or ``ranks 0 to 3``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    *others, last = ranks
    return f"ranks {', '.join(map(str, others))} and {last}"


class Lines:
    """Lines of text as in a terminal: text after a carriage return replaces the current line."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.current = ""
        self._again = False

    def write(self, text: str) -> None:
        """Add text."""
        for part in _BREAKS.split(_CURSOR.sub("", text)):
            if part == "\r":
                self._again = True
            elif part in ("\n", "\r\n"):
                self.done.append(self.current)
                self.current, self._again = "", False
            elif part:
                self.current = part if self._again else self.current + part
                self._again = False

    def write_block(self, text: str) -> None:
        """Add text on separate lines."""
        self.write(f"\n{text}\n" if self.current else f"{text}\n")

    def all(self) -> list[str]:
        """Return all lines, including the unfinished one."""
        return [*self.done, self.current] if self.current else list(self.done)


class TerminalOutput:
    """Prints each line, prefixed with its rank, as soon as it is complete."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._lines = {rank: Lines() for rank in ranks}

    def text(self, rank: int, text: str) -> None:
        """Add text printed by a rank, and print the lines that are now complete."""
        self._lines[rank].write(text)
        self._print_done(rank)

    def _print_done(self, rank: int) -> None:
        done, self._lines[rank].done = self._lines[rank].done, []
        for line in done:
            print(f"[{rank}] {line}")

    def show(self, rank: int, content: Mapping[str, Any], *, update: bool = False) -> None:
        """Print the plain-text representation of a rank's output."""
        self._lines[rank].write_block(content["data"].get("text/plain", ""))
        self._print_done(rank)

    def clear(self, rank: int) -> None:
        """Do nothing, because printed text cannot be removed."""

    def refresh(self) -> None:
        """Do nothing, because complete lines are printed immediately."""

    def finish(self) -> None:
        """Print unfinished lines."""
        for rank, lines in self._lines.items():
            if lines.current:
                self.text(rank, "\n")


class NotebookOutput:
    """A single output below the cell, updated in place."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = list(ranks)
        self._lines = {rank: Lines() for rank in ranks}
        self._place: Any = None
        self._shown = ""
        self._due = 0.0
        self._pictures: dict[int, list[str]] = {rank: [] for rank in ranks}
        self._cleared: dict[int, list[str]] = {rank: [] for rank in ranks}
        self._places: dict[tuple[int, str], str] = {}

    def text(self, rank: int, text: str) -> None:
        """Add text printed by a rank."""
        self._lines[rank].write(text)
        self.refresh()

    def show(self, rank: int, content: Mapping[str, Any], *, update: bool = False) -> None:
        """Show a rank's output; plain text is appended to the text that it printed."""
        from IPython.core.display_functions import display, publish_display_data

        data = content["data"]
        transient = content.get("transient") or {}
        if set(data) <= {"text/plain"} and not transient:
            self._lines[rank].write_block(data.get("text/plain", ""))
            self.refresh()
            return
        # Different ranks may use the same display ID for different outputs.
        own_id = transient.get("display_id") or uuid.uuid4().hex
        place = f"{own_id} of rank {rank}"
        if not update:
            if self._cleared[rank]:
                place, update = self._cleared[rank].pop(0), True
            else:
                self._end_block()
                display({"text/plain": f"{_BOLD}{named([rank])}{_PLAIN}"}, raw=True)
            self._pictures[rank].append(place)
            self._places[rank, own_id] = place
        publish_display_data(
            data=dict(data),
            metadata=content.get("metadata") or {},
            transient={**transient, "display_id": self._places.get((rank, own_id), place)},
            update=update,
        )

    def clear(self, rank: int) -> None:
        """Clear the text that a rank has printed in the current output.

        The rank's next outputs replace its previous ones.
        """
        self._lines[rank] = Lines()
        self._cleared[rank] = self._pictures[rank] + self._cleared[rank]
        self._pictures[rank] = []
        self.refresh()

    def refresh(self) -> None:
        """Update the output if it has changed, at most ten times per second."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + SECONDS
            self._draw()
            every = self._lines.values()
            if any(len(lines.current) > _LARGE for lines in every):
                self._end_block()
            elif sum(len(lines.done) for lines in every) > _LONG or len(self._shown) > _LARGE:
                self._end_block(whole_lines=True)

    def finish(self) -> None:
        """Write the remaining text, and empty the outputs that were cleared but not replaced."""
        from IPython.core.display_functions import update_display

        self._draw()
        for places in self._cleared.values():
            for place in places:
                update_display({"text/plain": ""}, display_id=place, raw=True)

    def _end_block(self, *, whole_lines: bool = False) -> None:
        """Begin a new output; if ``whole_lines`` is set, unfinished lines are moved to it."""
        kept = {rank: lines.current for rank, lines in self._lines.items() if whole_lines}
        for rank in kept:
            self._lines[rank].current = ""
        self._draw()
        self._place, self._shown = None, ""
        for rank, lines in self._lines.items():
            lines.done = []
            lines.current = kept.get(rank, "")

    def _draw(self) -> None:
        from IPython.core.display_functions import display

        text = self._text()
        if text == self._shown:
            return
        self._shown = text
        if self._place is None:
            self._place = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._place.update({"text/plain": text}, raw=True)

    def _text(self) -> str:
        groups: dict[tuple[str, ...], list[int]] = {}
        for rank in self._ranks:
            lines = tuple(self._lines[rank].all())
            if lines:
                groups.setdefault(lines, []).append(rank)
        parts = []
        for lines, ranks in groups.items():
            parts.append(f"{_BOLD}{named(ranks)}{_PLAIN}")
            parts += [f"  {line}".rstrip() for line in lines]
        return "\n".join(parts)
