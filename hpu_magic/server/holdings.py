"""A record of which processes held each card, stored in a limited amount of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SPANS = 400
"""Number of past spans to store for each card."""

_LONGEST_NAME = 200  # in characters; commands may contain long paths

Key = tuple[int, str | int]


@dataclass
class Span:
    """The time during which a process held a card, from the first to the last sample showing it."""

    id: int
    card: int
    pid: int
    command: str
    kernel: str | None
    notebook: str | None
    begun: float
    seen: float

    def as_record(self, *, held: bool) -> dict[str, Any]:
        """Return the span as a JSON-serializable dict; `held` means that it has not ended yet."""
        return {
            "id": self.id,
            "card": self.card,
            "pid": self.pid,
            "command": self.command,
            "kernel": self.kernel,
            "notebook": self.notebook,
            "from": self.begun,
            "to": self.seen,
            "held": held,
        }


class Holdings:
    """Spans during which cards are held, derived from samples.

    A kernel and its child processes count as one holder of a card. If a card cannot be read for
    more than `patience` seconds, its holder counts as unknown: the span ends at the last sample,
    and a new span begins once the card can be read again.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._open: dict[Key, Span] = {}
        self._ended: dict[int, deque[Span]] = {}
        self._count = 0

    def observe(self, record: Mapping[str, Any]) -> None:
        """Record the holders in a sample."""
        time: float = record["time"]
        read: set[int] = set()
        for card in record["cards"]:
            # A single failure to read a card does not end a span.
            if card["error"] is None or card["holders"]:
                read.add(card["module_id"])
            for holder in card["holders"]:
                self._extend(card["module_id"], holder, time)
        for key, span in list(self._open.items()):
            if span.seen < time and (key[0] in read or time - span.seen > self._patience):
                self._end(key)

    def since(self, time: float, now: float) -> list[dict[str, Any]]:
        """Return the spans that had not ended by `time`, sorted by card and start."""
        spans = [
            span.as_record(held=now - span.seen <= self._patience) for span in self._open.values()
        ]
        spans += [span.as_record(held=False) for span in self._all_ended()]
        recent = [span for span in spans if span["to"] >= time]
        return sorted(recent, key=lambda span: (span["card"], span["from"], span["id"]))

    def forget_before(self, time: float) -> None:
        """Remove the spans that ended before `time`."""
        for ended in self._ended.values():
            while ended and ended[0].seen < time:
                ended.popleft()

    def _extend(self, number: int, holder: Mapping[str, Any], time: float) -> None:
        kernel = holder["kernel"]
        key = (number, kernel["id"] if kernel else holder["pid"])
        span = self._open.get(key)
        if span is not None and time - span.seen > self._patience:
            self._end(key)
            span = None
        if span is None:
            self._count += 1
            span = self._open[key] = Span(
                self._count, number, holder["pid"], "", None, None, time, time
            )
        notebook = kernel and kernel["notebook"]
        # Update the names each time: notebooks can be renamed, and kernels may report names late.
        span.command = holder["command"][:_LONGEST_NAME]
        span.kernel = kernel and kernel["name"]
        span.notebook = notebook["path"][-_LONGEST_NAME:] if notebook else None
        span.seen = time

    def _end(self, key: Key) -> None:
        span = self._open.pop(key)
        self._ended.setdefault(span.card, deque(maxlen=SPANS)).append(span)

    def _all_ended(self) -> Iterator[Span]:
        for ended in self._ended.values():
            yield from ended
