"""The fit of the constants: least squares of the logarithm of estimated over published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import exp, log, sqrt

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from calibration.measurements import Asked
from hpu_magic.estimates.cost.constants import Constants

# What is fitted, what it is held to where measurements tell little, and how freely it may leave
# that: the standard deviation of its logarithm.
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


def fitted(asked: Iterable[Asked], start: Constants) -> Constants:
    """Return the constants that fit some measurements best."""
    given = [one for one in asked if one.measurement.scored]

    # Rows of one family and kind of work err together: many of them tell no more than a few.
    alike = Counter((one.measurement.family, one.measurement.kind) for one in given)
    noise = [
        _NOISE * sqrt(max(alike[one.measurement.family, one.measurement.kind] / _FEW, 1.0))
        for one in given
    ]

    def residuals(logarithms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        constants = with_values(start, np.exp(logarithms))
        wrong = [log(one.estimate(constants) / one.measurement.value) for one in given]
        held = [
            (here - log(value)) / width
            for here, (value, width) in zip(logarithms, PRIORS.values(), strict=True)
        ]
        return np.array([each / one for each, one in zip(wrong, noise, strict=True)] + held)

    highest = [0.0 if any(one in name for one in _SHARES) else 9.0 for name in PRIORS]
    found = least_squares(
        residuals,
        [log(value) for value, _ in PRIORS.values()],
        bounds=([-20.0] * len(highest), highest),
        loss="soft_l1",
        diff_step=1e-3,
        max_nfev=60,
    )
    return with_values(start, np.exp(found.x))


def held_out(asked: Sequence[Asked], start: Constants) -> dict[int, float]:
    """Return the error of each measurement, by its place, fitted without its family."""
    found: dict[int, float] = {}
    for family in sorted({one.measurement.family for one in asked}):
        constants = fitted([one for one in asked if one.measurement.family != family], start)
        for place, one in enumerate(asked):
            if one.measurement.family == family:
                found[place] = error(one, constants)
    return found


def values(constants: Constants) -> dict[str, float]:
    """Return the constants that are fitted, by their names."""
    found = {}
    for name in PRIORS:
        base, _, key = name.partition(".")
        value = getattr(constants, base)
        found[name] = value[key] if key else value
    return found


def with_values(constants: Constants, values: Sequence[float]) -> Constants:
    """Return constants with those that are fitted at some values."""
    changed: dict[str, object] = {}
    for name, value in zip(PRIORS, values, strict=True):
        base, _, key = name.partition(".")
        if key:
            changed[base] = {**changed.get(base, getattr(constants, base)), key: float(value)}
        else:
            changed[base] = float(value)
    return replace(constants, **changed)


def error(asked: Asked, constants: Constants) -> float:
    """Return by what share an estimate is too high; below 0 if it is too low."""
    return asked.estimate(constants) / asked.measurement.value - 1


def spread(errors: Iterable[float]) -> tuple[float, float, float]:
    """Return median and 90th percentile of errors without signs, and the geometric bias."""
    sizes = sorted(abs(one) for one in errors)
    bias = exp(sum(log(1 + one) for one in errors) / len(sizes)) if sizes else 1.0
    return float(np.median(sizes)), float(np.quantile(sizes, 0.9)), bias
