"""Run calibration rows as programs in dry runs, and list the times next to the published ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from page_table import PageTable

from calibration.measurements import TRAINING, Job, Measurement, job_of, measurements
from hpu_magic.dry_runs.request import Request
from hpu_magic.dry_runs.run import dry_run
from hpu_magic.errors import HPUError
from hpu_magic.estimates.cost.constants import FITTED

_PROGRAM = Path(__file__).parent / "program.py"
_PAGE = Path(__file__).parents[2] / "docs" / "estimates.md"
_COLUMNS = ("job", "published", "estimate", "dry run")


@dataclass(frozen=True)
class Compared:
    """A job's throughput in the row's unit; the last value is None without a dry run."""

    job: Job
    estimate: float
    dry_run: float | None
    reason: str = ""
    """Why the dry run is missing."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells of the table on the page."""
        one = self.job.measurement
        return (
            _name(one),
            f"{one.value:.4g}",
            self._text(self.estimate),
            self.reason if self.dry_run is None else self._text(self.dry_run),
        )

    def _text(self, value: float) -> str:
        return f"{value:.4g} ({value / self.job.measurement.value - 1:+.0%})"


def rows() -> list[Measurement]:
    """Return the measurements of training, without those that a newer release superseded."""
    return [
        one
        for one in measurements()
        if one.kind == TRAINING and "superseded" not in one.row["trust"]
    ]


def compared(names: list[str]) -> Iterator[Compared]:
    """Run the rows whose job contains one of the names, update the page, and yield the results."""
    table = PageTable(_PAGE, _COLUMNS, [_name(one) for one in rows()])
    for one in rows():
        if names and not any(name in _name(one) for name in names):
            continue
        job = job_of(one)
        reason, seconds = _reason(one), None
        if not reason:
            try:
                seconds = _seconds(one)
            except HPUError as error:
                reason = "out of memory" if "Allocation failed" in str(error) else str(error)
        found = job.amount / seconds if seconds else None
        result = Compared(job, job.estimate(FITTED), found, reason)
        table.update(result.cells)
        yield result


def _name(one: Measurement) -> str:
    return f"{one.row['model']}, {one.job}"


def _reason(one: Measurement) -> str:
    """Return why a row is not a program, or an empty string if it is one."""
    row = one.row
    if one.layout.tensor > 1 or one.layout.pipeline > 1:
        return "needs Megatron-LM"
    if row["dtype"] == "fp8":
        return "needs a model with FP8 layers"
    if row["attention"] == "fused":
        return "needs a model with the vendor's attention operator"
    return ""


def _seconds(one: Measurement) -> float:
    """Return the time of a step in a dry run."""
    row = one.row
    arguments = [row["model"], f"--parallel={'ddp' if row['parallel'] == '-' else row['parallel']}"]
    for name in ("batch", "tokens", "dtype", "accumulate", "recomputed", "trained"):
        arguments.append(f"--{name}={row[name]}")
    if row["mode"] == "compile":
        arguments.append("--compile")
    request = Request(str(_PROGRAM), arguments, card=row["generation"], cards=int(row["cards"]))
    os.environ["PT_HPU_LAZY_MODE"] = str(int(row["mode"] in ("lazy", "graphs")))
    result = dry_run(request, output=subprocess.DEVNULL)
    if result.status or result.time is None or not result.steps:
        raise HPUError(result.error or "no optimizer step ran.")
    return result.time.seconds
