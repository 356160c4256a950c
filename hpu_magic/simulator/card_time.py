"""The clock of the simulated card, which estimates how long a program would take on a card.

There are two clocks. The host launches operators and graphs in order, and the card runs them. If
the host reads a value or synchronizes, it waits for the card. The prices, which are estimated
times, come from `hpu_magic.CARD_TIME_PRICES`, which is imported when the clock starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import hpu_magic
from hpu_magic.simulator import engine
from hpu_magic.simulator.cards.configuration import HOSTS, Configuration, card_time_host
from hpu_magic.simulator.link_time import LinkTime
from hpu_magic.simulator.link_time import Source as LinkSource

FALLBACK = 2**31  # `kFallback` in native/clock/clock.h
_MOST_RECORDS = 1_000_000
_PROCESS = "card time"  # name of the process in a trace

_source: _Source | None = None
_earlier: list[Record] = []  # records that `take_records` has not returned yet
_links: LinkTime | None = None
_is_on = False


class _Source(LinkSource, Protocol):
    band: tuple[float, float]
    in_float32: bool

    def __call__(self, operations: Any, storages: Any, graph: bool) -> Any: ...


@dataclass(frozen=True)
class Reading:
    """The state of the clocks, in seconds since the clock was started."""

    host: float
    card: float
    idle: float
    """Time that the card waited for the host."""
    compilation: float
    """Time to compile graphs, which is not part of the other times."""
    busy: dict[str, float]
    """Time for each part of the card: matrix, vector, memory, links and launch."""
    sent: dict[str, int]
    """Bytes that the card sent to other cards, by kind of collective."""
    launches: int
    """Number of operators and graphs that ran."""
    waits: int
    """Number of times that the host waited for the card."""
    unpriced: dict[str, int]
    """How often each kind of work without a price ran. This work took no time."""
    band: tuple[float, float]
    """Range in which a measurement is expected, in multiples of these times."""
    in_float32: bool
    """Whether float32 matrices were multiplied."""

    @property
    def end(self) -> float:
        """The time at which all launched work ends."""
        return max(self.host, self.card)


@dataclass(frozen=True)
class Record:
    """An operator, graph or collective that ran; times are in seconds."""

    name: str
    launched: float
    """Time of the launch on the host's clock."""
    launching: float
    """Time that the host needed to launch it."""
    start: float
    """Time of the start on the card's clock."""
    seconds: float
    parts: dict[str, float]
    label: int
    """The label at the launch, plus `FALLBACK` for copies of a CPU fallback.

    See `hpu_magic.simulator.dry_run.labels`.
    """
    shares: list[tuple[int, dict[str, float]]]
    """The part of ``seconds`` of a graph's operators, by their label and by the part of the card
    that limits them; empty for a single operator."""


def start(host: str = "ideal", *, records: bool = False) -> None:
    """Set both clocks to zero and start them.

    ``host`` is one of `HOSTS`. If ``records`` is true, each operator is recorded for
    `take_records`. Raises ValueError if ``host`` is unknown.
    """
    global _source, _links, _is_on
    if host not in HOSTS:
        raise ValueError(f"host is {host!r}; use one of {', '.join(map(repr, HOSTS))}.")
    native = engine.load()
    if _source is None or _links is None:
        module, _, name = hpu_magic.CARD_TIME_PRICES.partition(":")
        made = getattr(import_module(module), name)
        _source = made(Configuration.from_environment().generation)
        _links = LinkTime(_source)
        native.set_price_sources(_source, _links)
        _begin_steps(_links)
    _links.reset()
    native.start_clock(host == "measured", _MOST_RECORDS if records else 0)
    _earlier.clear()
    _is_on = True


def _begin_steps(links: LinkTime) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda *_: links.end_step())


def stop() -> None:
    """Stop the clocks; `read` still returns their state."""
    global _is_on
    if _is_on:
        engine.load().stop_clock()
        _is_on = False


def is_on() -> bool:
    """Return whether the clocks are running."""
    return _is_on


def read() -> Reading:
    """Return the state of the clocks. Raises RuntimeError if the clocks were never started."""
    if _source is None or _links is None:
        raise RuntimeError(
            "The card's clock was not started; set HPU_MAGIC_CARD_TIME=1, or call start()."
        )
    fields = engine.load().read_clock()
    fields.pop("lost")
    return Reading(
        **fields,
        sent=dict(_links.sent),
        band=_source.band,
        in_float32=_source.in_float32,
    )


def last_transfer() -> float:
    """Return how long the last collective or message uses the links; 0 if the clocks are off."""
    return _links.last if _links is not None and _is_on else 0.0


def price_error() -> str:
    """Return the first error that occurred when a price was computed, or an empty string."""
    return str(engine.load().price_error())


def take_records() -> list[Record]:
    """Return the work that ran since the last call, at most one million launches."""
    taken = [*_earlier, *(Record(*each) for each in engine.load().take_records())]
    _earlier.clear()
    return taken


@contextmanager
def recording() -> Iterator[list[Record]]:
    """Record the work that runs in a ``with`` block, and fill the list at its end.

    If ``start(records=True)`` also records the work, `take_records` still returns it.
    """
    native = engine.load()
    before, records = take_records(), list[Record]()
    kept = native.keep_records(_MOST_RECORDS)
    try:
        yield records
    finally:
        records += take_records()
        native.keep_records(kept)
        if kept:
            _earlier.extend([*before, *records])


def write_trace(path: str | Path, records: Iterable[Record] | None = None) -> None:
    """Write records, or those of `take_records`, as a trace that ui.perfetto.dev can open.

    The host and each part of the card have a track. Like `take_records`, this requires
    ``start(records=True)``.
    """
    events = trace_events(take_records() if records is None else records)
    Path(path).write_text(json.dumps({"traceEvents": events}))


def trace_events(records: Iterable[Record], start: float = 0.0) -> list[dict[str, object]]:
    """Return the work as events of a trace, with a track for the host and each part of the card.

    ``start`` is added to all times, in seconds.
    """
    reading = read()
    low, high = reading.band
    title = f"Card time (estimate; measured times may be {low:.2g} to {high:.2g} times as long)"
    tracks = ("host", *reading.busy)
    events = [_metadata("process_name", 0, title)]
    events += [_metadata("thread_name", number, name) for number, name in enumerate(tracks)]
    for record in records:
        events += _spans(record, start)
    return events


def _metadata(kind: str, track: int, name: str) -> dict[str, object]:
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": track, "args": {"name": name}}


def _spans(record: Record, start: float) -> Iterator[dict[str, object]]:
    """Yield a span for each part. After the launch, the engines run in parallel, then the links."""
    launched = record.start + record.parts["launch"]
    starts = (
        {"host": record.launched}
        | dict.fromkeys(record.parts, launched)
        | {
            "launch": record.start,
            "links": record.start + record.seconds - record.parts["links"],
        }
    )
    parts = {"host": record.launching} | record.parts
    for track, (part, seconds) in enumerate(parts.items()):
        if seconds:
            times = {"ts": (start + starts[part]) * 1e6, "dur": seconds * 1e6}
            yield {"name": record.name, "ph": "X", "pid": _PROCESS, "tid": track, **times}


def start_if_requested(*, records: bool = False) -> None:
    """Start the clocks if ``HPU_MAGIC_CARD_TIME`` is set; see `start`.

    Raises ValueError if its value is invalid.
    """
    if host := card_time_host():
        start(host, records=records)
