"""Read the state of a vLLM server from its Prometheus metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

_OLD_CACHE_NAME = "vllm:gpu_cache_usage_perc"  # the name before vLLM 0.11


@dataclass(frozen=True)
class ServerSample:
    """Values of a vLLM server at one point in time; a value that the server does not report is NaN.

    ``time`` is in seconds, on any clock. These values are totals since the server started: the
    number of tokens, the time to first token (``waited``, in seconds, summed over ``first_tokens``
    requests), and the numbers of tokens looked up and found in the prefix cache.
    """

    time: float
    running: float  # requests
    waiting: float  # requests
    finished: float  # requests
    generated: float  # tokens
    waited: float
    first_tokens: float
    cache_usage: float  # share of the KV cache that is in use, from 0 to 1
    prefix_queries: float
    prefix_hits: float

    @property
    def prefix_hit_rate(self) -> float:
        """Share of prompt tokens that were found in the prefix cache; NaN without prompt tokens."""
        return _ratio(self.prefix_hits, self.prefix_queries)


def parse(text: str, time: float) -> ServerSample:
    """Parse the output of the ``/metrics`` endpoint, and add up the values of several engines."""
    from prometheus_client.parser import text_string_to_metric_families

    totals: dict[str, list[float]] = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            totals[sample.name].append(sample.value)

    def total(name: str) -> float:
        return math.fsum(totals[name]) if name in totals else math.nan

    cache = totals.get("vllm:kv_cache_usage_perc") or totals.get(_OLD_CACHE_NAME)
    return ServerSample(
        time,
        running=total("vllm:num_requests_running"),
        waiting=total("vllm:num_requests_waiting"),
        finished=total("vllm:request_success_total"),
        generated=total("vllm:generation_tokens_total"),
        waited=total("vllm:time_to_first_token_seconds_sum"),
        first_tokens=total("vllm:time_to_first_token_seconds_count"),
        cache_usage=max(cache) if cache else math.nan,
        prefix_queries=total("vllm:prefix_cache_queries_total"),
        prefix_hits=total("vllm:prefix_cache_hits_total"),
    )


def tokens_per_second(before: ServerSample, now: ServerSample) -> float:
    """Return the generated tokens per second between two samples."""
    return _ratio(now.generated - before.generated, now.time - before.time)


def time_to_first_token(before: ServerSample | None, now: ServerSample) -> float:
    """Return the mean time in seconds to the first token of the requests between two samples.

    If there were no such requests, or `before` is None, the mean of all requests is returned.
    """
    if before is not None and now.first_tokens > before.first_tokens:
        return _ratio(now.waited - before.waited, now.first_tokens - before.first_tokens)
    return _ratio(now.waited, now.first_tokens)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan
