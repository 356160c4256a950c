"""Fit the constants by minimizing the squares of log(estimated / published)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares
from scipy.stats import norm, qmc

from calibration.batch import Batch
from hpu_magic.estimates.cost.constants import FITTED, Constants

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
    "exchange.zero": (2.0, 0.15),
    "exchange.zero3": (2.0, 0.5),
}
Priors = Mapping[str, tuple[float, float]]
_SHARES = ("efficiency", "fusion")
_NOISE = 0.12
_FEW = 6
_STARTS = 3
"""Number of fits with different starting values; with 16 fits, the cost is at most 0.2 % lower."""


@dataclass(frozen=True)
class Figures:
    """Estimates of all measurements, in the order of the measurements."""

    estimated: Sequence[float]
    held_out: Sequence[float]
    """Relative errors with constants that are fitted to the other model families."""
    peaks: Sequence[float]
    """Estimates of the memory measurements."""


def fitted(batch: Batch, priors: Priors = PRIORS, left_out: Collection[str] = ()) -> Constants:
    """Return the constants that best fit the measurements of all families that are not left out."""
    used = [
        index
        for index, job in enumerate(batch.jobs)
        if job.measurement.scored and job.measurement.family not in left_out
    ]
    scored = [batch.jobs[index].measurement for index in used]

    # The errors of rows with the same family and kind are correlated, so each such group has a
    # limited weight.
    alike = Counter((one.family, one.kind) for one in scored)
    noise = np.array(
        [_NOISE * sqrt(max(alike[one.family, one.kind] / _FEW, 1.0)) for one in scored]
    )
    published = np.array([one.value for one in scored])
    assumed = np.log([value for value, _ in priors.values()])
    widths = np.array([width for _, width in priors.values()])

    def residuals(logarithms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        constants = with_values(FITTED, np.exp(logarithms), priors)
        errors = np.log(batch.estimates(constants)[used] / published)
        return np.concatenate([errors / noise, (logarithms - assumed) / widths])

    # The slopes change where another part of the card becomes the slowest, so each fit ends in a
    # local minimum. With smaller difference steps, a fit often stops before the minimum.
    highest = [0.0 if any(share in name for share in _SHARES) else 9.0 for name in priors]
    fits = [
        least_squares(
            residuals,
            np.minimum(start, np.array(highest) - 1e-3),
            bounds=([-20.0] * len(highest), highest),
            method="dogbox",
            loss="soft_l1",
            diff_step=1e-2,
            ftol=1e-4,
            max_nfev=60,
        )
        for start in _starts(assumed, widths)
    ]
    return with_values(FITTED, np.exp(min(fits, key=lambda fit: fit.cost).x), priors)


def _starts(
    assumed: npt.NDArray[np.float64], widths: npt.NDArray[np.float64]
) -> list[npt.NDArray[np.float64]]:
    """Return the assumed values and fixed points around them, which no measurement changes."""
    # The first point of the sequence has only zeros.
    points = qmc.Halton(len(assumed), scramble=False).random(_STARTS)[1:]
    return [assumed, *(assumed + norm.ppf(points) * widths)]


def held_out(batch: Batch, priors: Priors = PRIORS) -> list[float]:
    """Return the error of each measurement, with constants fitted to the other families."""
    errors = np.zeros(len(batch.jobs))
    for family, indices in families(batch).items():
        errors[indices] = errors_of(batch, fitted(batch, priors, [family]))[indices]
    return [float(each) for each in errors]


def families(batch: Batch) -> dict[str, list[int]]:
    """Return the indices of the measurements of each family."""
    found: dict[str, list[int]] = {}
    for index, job in enumerate(batch.jobs):
        found.setdefault(job.measurement.family, []).append(index)
    return dict(sorted(found.items()))


def values(constants: Constants, priors: Priors = PRIORS) -> dict[str, float]:
    """Return the fitted constants by name."""
    found = {}
    for name in priors:
        base, _, key = name.partition(".")
        value = getattr(constants, base)
        found[name] = value[key] if key else value
    return found


def with_values(
    constants: Constants, values: Iterable[float], priors: Priors = PRIORS
) -> Constants:
    """Return the constants, with the fitted ones set to new values."""
    changed: dict[str, object] = {}
    for name, value in zip(priors, values, strict=True):
        base, _, key = name.partition(".")
        if key:
            changed[base] = {**changed.get(base, getattr(constants, base)), key: float(value)}
        else:
            changed[base] = float(value)
    return replace(constants, **changed)


def errors_of(batch: Batch, constants: Constants) -> npt.NDArray[np.float64]:
    """Return the relative error of each estimate; it is positive if the estimate is too high."""
    published = np.array([job.measurement.value for job in batch.jobs])
    found: npt.NDArray[np.float64] = batch.estimates(constants) / published - 1
    return found


def spread(errors: Collection[float]) -> tuple[float, float, float]:
    """Return the median and the 90th percentile of the absolute errors, and the geometric bias."""
    sizes = sorted(map(abs, errors))
    bias = exp(sum(log(1 + each) for each in errors) / len(sizes)) if sizes else 1.0
    return float(np.median(sizes)), float(np.quantile(sizes, 0.9)), bias
