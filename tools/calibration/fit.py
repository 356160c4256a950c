"""Fit the constants by minimizing the squares of log(estimated / published)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from calibration.measurements import Job
from hpu_magic.estimates.cost.constants import Constants

# Maps each fitted constant to its assumed value and to the standard deviation of its logarithm,
# which limits the deviation from the assumed value if the measurements contain little information.
PRIORS: dict[str, tuple[float, float]] = {
    "matrix_efficiency.gaudi": (0.9, 0.15),
    "matrix_efficiency.gaudi2": (0.95, 0.05),
    "matrix_efficiency.gaudi3": (0.9, 0.15),
    "memory_efficiency.gaudi": (0.8, 0.2),
    "memory_efficiency.gaudi2": (0.9, 0.1),
    "memory_efficiency.gaudi3": (0.85, 0.1),
    "vector_efficiency": (0.5, 0.5),
    "block": (512, 0.5),
    "fusion": (0.7, 0.3),
    "node_seconds": (3e-6, 0.7),
    "launch_seconds": (10e-6, 0.7),
    "link_latency": (20e-6, 0.7),
    "exchange.ddp": (0.7, 0.5),
    "exchange.zero": (2.0, 0.5),
}
_SHARES = ("efficiency", "fusion")
_NOISE = 0.12
_FEW = 6


@dataclass(frozen=True)
class Figures:
    """Estimates of all measurements, in the order of the measurements."""

    estimated: Sequence[float]
    held_out: Sequence[float]
    """Relative errors with constants that are fitted to the other model families."""
    peaks: Sequence[float]
    """Estimates of the memory measurements."""


def fitted(jobs: Iterable[Job], start: Constants) -> Constants:
    """Return the constants that best fit the measurements."""
    scored = [job for job in jobs if job.measurement.scored]

    # Errors of rows with the same family and kind are correlated, so a large group of such rows
    # counts no more than a small one.
    alike = Counter((job.measurement.family, job.measurement.kind) for job in scored)
    noise = [
        _NOISE * sqrt(max(alike[job.measurement.family, job.measurement.kind] / _FEW, 1.0))
        for job in scored
    ]

    def residuals(logarithms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        constants = with_values(start, np.exp(logarithms))
        errors = [log(job.estimate(constants) / job.measurement.value) for job in scored]
        priors = [
            (here - log(value)) / width
            for here, (value, width) in zip(logarithms, PRIORS.values(), strict=True)
        ]
        return np.array([e / n for e, n in zip(errors, noise, strict=True)] + priors)

    highest = [0.0 if any(share in name for share in _SHARES) else 9.0 for name in PRIORS]
    found = least_squares(
        residuals,
        [log(value) for value, _ in PRIORS.values()],
        bounds=([-20.0] * len(highest), highest),
        loss="soft_l1",
        diff_step=1e-3,
        max_nfev=60,
    )
    return with_values(start, np.exp(found.x))


def held_out(jobs: Sequence[Job], start: Constants) -> list[float]:
    """Return the error of each measurement, with constants fitted to the other families."""
    errors = [0.0] * len(jobs)
    for family in sorted({job.measurement.family for job in jobs}):
        constants = fitted([job for job in jobs if job.measurement.family != family], start)
        for index, job in enumerate(jobs):
            if job.measurement.family == family:
                errors[index] = error(job, constants)
    return errors


def values(constants: Constants) -> dict[str, float]:
    """Return the fitted constants by name."""
    found = {}
    for name in PRIORS:
        base, _, key = name.partition(".")
        value = getattr(constants, base)
        found[name] = value[key] if key else value
    return found


def with_values(constants: Constants, values: Sequence[float]) -> Constants:
    """Return the constants with new values for the fitted ones."""
    changed: dict[str, object] = {}
    for name, value in zip(PRIORS, values, strict=True):
        base, _, key = name.partition(".")
        if key:
            changed[base] = {**changed.get(base, getattr(constants, base)), key: float(value)}
        else:
            changed[base] = float(value)
    return replace(constants, **changed)


def error(job: Job, constants: Constants) -> float:
    """Return the relative error of an estimate, which is positive if it is too high."""
    return job.estimate(constants) / job.measurement.value - 1


def spread(errors: Iterable[float]) -> tuple[float, float, float]:
    """Return the median and the 90th percentile of the absolute errors, and the geometric bias."""
    sizes = sorted(map(abs, errors))
    bias = exp(sum(log(1 + each) for each in errors) / len(sizes)) if sizes else 1.0
    return float(np.median(sizes)), float(np.quantile(sizes, 0.9)), bias
