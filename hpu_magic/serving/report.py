"""The state of a server as a report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hpu_magic import notebook, units
from hpu_magic.backend import is_simulated
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.serving.log import Preparation
from hpu_magic.serving.metrics import ServerSample, time_to_first_token, tokens_per_second


class ServerReport(Report):
    """The address of a server and its newest values; unknown values are None.

    Attributes
    ----------
    model, url : str or None
        The model and the base address of the API; None if no server is running.
    cards : list of int
        Module IDs of the server's cards.
    running, waiting, finished : int or None
        Numbers of requests.
    tokens_per_second : float or None
        Generated tokens per second since the previous sample.
    time_to_first_token : float or None
        Mean in seconds.
    cache_usage, prefix_hit_rate : float or None
        Share of the KV cache that is in use, and share of prompt tokens that were found in it, from
        0 to 1.
    preparation : Preparation or None
        The warm-up and the input shapes that it did not cover, from the server's output.
    """

    def __init__(
        self,
        model: str | None,
        url: str | None = None,
        cards: Sequence[int] = (),
        sample: ServerSample | None = None,
        before: ServerSample | None = None,
        preparation: Preparation | None = None,
        *,
        on_panel: bool = False,
        ended: str = "",
    ) -> None:
        self.model = model
        self.url = url
        self.cards = list(cards)
        self.preparation = preparation
        self._ended = ended
        self._shown_by_cell = notebook.running_cell() if on_panel else None
        self.running = self.waiting = self.finished = None
        self.tokens_per_second = self.time_to_first_token = None
        self.cache_usage = self.prefix_hit_rate = None
        if sample is not None:
            self.running, self.waiting, self.finished = map(
                _count, (sample.running, sample.waiting, sample.finished)
            )
            if before is not None:
                self.tokens_per_second = _known(tokens_per_second(before, sample))
            self.time_to_first_token = _known(time_to_first_token(before, sample))
            self.cache_usage = _known(sample.cache_usage)
            self.prefix_hit_rate = _known(sample.prefix_hit_rate)

    def _ipython_display_(self) -> None:
        """Show the report, unless the live panel in the same cell already shows it."""
        from IPython.display import display

        if self._shown_by_cell is not None and self._shown_by_cell == notebook.running_cell():
            return
        display({"text/plain": repr(self), "text/html": self._repr_html_()}, raw=True)

    def title(self) -> str:
        """Return the headline."""
        if self.model is None:
            return "No server is running."
        where = ", ".join(f"HPU {number}" for number in self.cards) or "the card"
        simulated = " (simulated)" if is_simulated() else ""
        return f"vLLM serves {self.model} on {where}{simulated}"

    def rows(self) -> Sequence[Row]:
        """Return a row for each known value."""
        if self.model is None:
            return ()
        requests = [
            f"{number} {state}"
            for number, state in (
                (self.running, "running"),
                (self.waiting, "waiting"),
                (self.finished, "finished"),
            )
            if number is not None
        ]
        values = (
            ("address", self.url),
            ("requests", ", ".join(requests)),
            ("generated", _text(self.tokens_per_second, lambda rate: units.rate(rate, "tokens"))),
            (
                "first token",
                _text(self.time_to_first_token, lambda s: f"after {units.duration(s)}"),
            ),
            ("KV cache", _text(self.cache_usage, _percent)),
            ("prefix hits", _text(self.prefix_hit_rate, _percent)),
        )
        known = [(label, value) for label, value in values if value]
        return known + _prepared(self.preparation)

    def notes(self) -> Sequence[str]:
        """Return how the server ended or how to stop it, and a note about simulated times."""
        if self._ended:
            return (self._ended,)
        if self.model is None:
            return ("To start a server, type %hpu_serve MODEL.",)
        stop = "To stop the server, type %hpu_serve off."
        if not is_simulated():
            return (stop,)
        return (stop, "Times on the simulator do not predict times on a card.")


def _prepared(preparation: Preparation | None) -> list[Row]:
    if preparation is None:
        return []
    rows = []
    if preparation.warmup is not None or preparation.skipped:
        took = preparation.warmup
        rows.append(("warm-up", "skipped" if took is None else units.rough(took)))
    if preparation.new_shapes:
        rows.append(("new shapes", f"{preparation.new_shapes} since the warm-up"))
    return rows


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _count(value: float) -> int | None:
    return int(value) if math.isfinite(value) else None


def _text(value: float | None, write: Callable[[float], str]) -> str:
    return "" if value is None else write(value)


def _percent(share: float) -> str:
    return units.share(share, 1.0)
