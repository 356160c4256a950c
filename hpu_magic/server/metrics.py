"""Export the cards on Jupyter Server's Prometheus endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from hpu_magic.plain_text import printable
from hpu_magic.server.sampler import LINGER_INTERVAL, Record

MAX_AGE = 3 * LINGER_INTERVAL
"""Maximum age of exported samples, in seconds."""

_LABELS = ("card", "module_id", "name")

# Maps each metric to a key in a card's record, a conversion factor to the metric's unit, and a help
# text.
_GAUGES = {
    "hpu_memory_used_bytes": ("memory_used", 1, "Device memory in use."),
    "hpu_memory_total_bytes": ("memory_total", 1, "Device memory of the card."),
    "hpu_utilization_ratio": ("utilization", 0.01, "Fraction of time spent computing."),
    "hpu_temperature_celsius": ("temperature", 1, "Chip temperature."),
    "hpu_power_watts": ("power", 1, "Power draw."),
    "hpu_clock_hertz": ("clock", 1e6, "Chip clock frequency."),
}


class CardCollector(Collector):
    """Exports the last sample, omitting missing values.

    `latest` returns the last sample if it is not older than the given number of seconds. A scrape
    must not wait for the cards to be read, so each scrape calls `keep_sampling`, possibly from
    another thread, to request the sample for the next scrape.
    """

    def __init__(
        self, latest: Callable[[float], Record | None], keep_sampling: Callable[[], None]
    ) -> None:
        self._latest = latest
        self._keep_sampling = keep_sampling

    def describe(self) -> list[Any]:
        """Return no metrics, so that registering the collector does not trigger a scrape."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges."""
        self._keep_sampling()
        record = self._latest(MAX_AGE)
        cards = record["cards"] if record else []
        for metric, (key, factor, text) in _GAUGES.items():
            values = [(card, card[key]) for card in cards if card[key] is not None]
            yield _gauge(metric, text, [(card, value * factor) for card, value in values])
        held = [(card, float(bool(card["holders"]))) for card in cards if card["error"] is None]
        yield _gauge("hpu_held", "1 if a visible process holds the card, otherwise 0.", held)


def _gauge(metric: str, text: str, values: list[tuple[Record, float]]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(metric, text, labels=_LABELS)
    for card, value in values:
        number = card["module_id"]
        gauge.add_metric([f"HPU {number}", str(number), printable(card["name"])], value)
    return gauge
