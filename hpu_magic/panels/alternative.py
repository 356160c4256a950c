"""What the picture of a run shows, in sentences: for who does not see it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpu_magic import units
from hpu_magic.panels.metric_chart import best_of, number
from hpu_magic.panels.record import RunRecord


def described(record: RunRecord, kinds: Sequence[str]) -> str:
    """Return sentences on each chart: what it shows, its last and its best values."""
    sentences = []
    if "loss" in kinds:
        sentences += [_metric(record, metric) for metric in record.metrics.drawn]
        sentences += [f"{one.curve} became {one.full}" for one in record.not_finite]
    data = record.lines.data()
    if "speed" in kinds and (paces := _known(data["speed"])):
        sentences.append(f"Pace: {units.rate(paces[-1])} at the end")
    if "memory" in kinds and (used := _known(data["in_use"])):
        peak = max(_known(data["peak"]) or used)
        known = math.isfinite(record.limit)
        share = f", {units.share(peak, record.limit)}" if known else ""
        limit = f" of {units.capacity(record.limit)}" if known else ""
        sentences.append(
            f"Device memory: {units.size(used[-1])} in use at the end, "
            f"at most {units.size(peak)}{share}{limit}"
        )
    times = _known(data["time"])
    span = f"Over {units.duration(times[-1])}. " if times else ""
    return span + " ".join(f"{sentence}." for sentence in sentences if sentence)


def _metric(record: RunRecord, metric: str) -> str:
    curves = [one for one in record.metrics.of(metric) if one.last is not None]
    last = ", ".join(
        f"{one.name} {number(one.last.value)}" for one in curves if one.last is not None
    )
    best = best_of(record.curves, curves)
    if not last:
        return ""
    if best is None:
        return f"Chart of {metric}: last {last}"
    return (
        f"Chart of {metric}: last {last}; best of {best.curve.name} {number(best.value)} "
        f"at step {best.step}"
    )


def _known(values: Sequence[float]) -> list[float]:
    return [one for one in values if math.isfinite(one)]
