"""Published peak memory and largest batches, with estimates for the same jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from calibration import models
from calibration.measurements import BATCHED, SINGLE, TRAINING, Measurement, rows_of
from hpu_magic.estimates.estimate import estimate
from hpu_magic.estimates.generation.estimate import estimate_generation

_UNITS = {"MiB": 2**20, "GiB": 2**30}
LARGEST = "sequences"


@dataclass(frozen=True)
class Peak:
    """A published figure of memory or of the largest batch, with its estimate."""

    measurement: Measurement
    estimated: float


def peaks() -> Iterator[Peak]:
    """Yield all published figures."""
    for row in rows_of("memory.tsv"):
        if row["new"] == "-":
            yield Peak(Measurement(row, TRAINING), _training(row))
        else:
            kind = SINGLE if row["batch"] == "1" else BATCHED
            yield Peak(Measurement(row, kind), _generation(row))


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
        dtype=row["precision"],
        checkpointing=row["recomputed"],
        accumulate=int(row["accumulate"]),
    )
    return found.peak_memory / _UNITS[row["unit"]]


def _generation(row: dict[str, str]) -> float:
    found = estimate_generation(
        models.built(row["model"]).eval(),
        int(row["batch"]),
        int(row["prompt"]),
        int(row["new"]),
        card=row["generation"],
        mode=row["mode"],
        dtype=row["precision"],
        cache_dtype=row["kv"],
    )
    if row["unit"] == LARGEST:
        return float(found.largest_batch)
    return found.peak_memory / _UNITS[row["unit"]]
