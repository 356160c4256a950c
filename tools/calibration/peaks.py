"""Estimates for the jobs with a published peak memory or largest batch."""

from __future__ import annotations

from collections.abc import Iterator

from calibration import models
from calibration.measurements import rows_of
from hpu_magic.estimates.estimate import estimate
from hpu_magic.estimates.generation.estimate import estimate_generation

_UNITS = {"MiB": 2**20, "GiB": 2**30}
_LARGEST = "sequences"


def peaks() -> Iterator[float]:
    """Yield the estimates of all published figures, in the same units."""
    for row in rows_of("memory.tsv"):
        yield _training(row) if row["new"] == "-" else _generation(row)


def _training(row: dict[str, str]) -> float:
    model = models.built(row["model"], attention=row["attention"])
    if row["trained"] != "full":
        models.train_adapters(model, row["trained"])
    found = estimate(
        model,
        models.inputs(row["model"], int(row["batch"]), int(row["tokens"])),
        card=row["generation"],
        cards=int(row["cards"]),
        parallel=None if row["parallel"] == "-" else row["parallel"],
        mode=row["mode"],
        dtype=row["dtype"],
        checkpointing=row["recomputed"],
        accumulate=int(row["accumulate"]),
    )
    return found.peak / _UNITS[row["unit"]]


def _generation(row: dict[str, str]) -> float:
    found = estimate_generation(
        models.built(row["model"]).eval(),
        int(row["batch"]),
        int(row["prompt"]),
        int(row["new"]),
        card=row["generation"],
        mode=row["mode"],
        dtype=row["dtype"],
        cache_dtype=row["cache_dtype"],
    )
    if row["unit"] == _LARGEST:
        return float(found.largest_batch)
    return found.peak / _UNITS[row["unit"]]
