"""Choose the regularization of the fit, and calculate errors for data that the choice did not use.

Two levels of families are left out. For each outer family, the candidate with the smallest errors
on the other families is chosen; for this, each of the other families is left out in turn. Then the
constants are fitted to the other families with this candidate, and the outer family's errors are
calculated.
These errors show what to expect for families that neither the fit nor the choice has seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.stats import t

from calibration.batch import Batch
from calibration.fit import PRIORS, Priors, errors_of, families, fitted

# This constant must be small, because a step with ZeRO takes about as long on two cards as on one.
_FIXED = {"exchange.zero"}
Errors = npt.NDArray[np.float64]


def candidates() -> dict[str, Priors]:
    """Return the candidates by name: how far constants may deviate from their assumed values."""
    return {
        f"{factor:.2g} times the deviations": {
            name: (value, width * (1.0 if name in _FIXED else factor))
            for name, (value, width) in PRIORS.items()
        }
        for factor in (1.0, 1.5)
    }


class Selection:
    """Chooses among candidates by their errors for families that are left out."""

    def __init__(self, batch: Batch, known: Mapping[str, Priors]) -> None:
        self._batch, self._known = batch, known
        self._families = families(batch)
        self._errors = cache(self._errors_without)

    def nested(self) -> tuple[dict[str, str], Errors]:
        """Choose a candidate for each family without using it; also return all errors."""
        errors = np.zeros(len(self._batch.jobs))
        chosen = {}
        for family, rows in self._families.items():
            chosen[family] = self.best({family})
            errors[rows] = self._errors(chosen[family], frozenset({family}))[rows]
        return chosen, errors

    def best(self, without: Collection[str] = ()) -> str:
        """Return the candidate with the smallest errors on the families that are left out."""
        return min(self._known, key=lambda name: self.score(name, without))

    def score(self, name: str, without: Collection[str] = ()) -> float:
        """Return the mean error of a candidate, with the same weight for each family and kind."""
        cells: dict[tuple[str, str], list[float]] = {}
        for family, rows in self._families.items():
            if family in without:
                continue
            errors = self._errors(name, frozenset({family, *without}))
            for row in rows:
                one = self._batch.jobs[row].measurement
                if one.scored:
                    size = abs(float(np.log1p(errors[row])))
                    cells.setdefault((family, one.kind), []).append(size)
        return float(np.mean([np.mean(cell) for cell in cells.values()]))

    def _errors_without(self, name: str, left_out: frozenset[str]) -> Errors:
        constants = fitted(self._batch, self._known[name], left_out)
        return errors_of(self._batch, constants)


def band(batch: Batch, errors: Errors, kind: str, share: float = 0.9) -> float:
    """Return the factor within which a share of the errors for another family is expected.

    The factor is a prediction interval. All families have the same weight, and the interval is
    wider if there are only a few families.
    """
    squares = []
    for rows in families(batch).values():
        ones = [row for row in rows if _counts(batch, row, kind)]
        if ones:
            squares.append(float(np.mean(np.log1p(errors[ones]) ** 2)))
    count = len(squares)
    width = t.ppf((1 + share) / 2, count) * np.sqrt(np.mean(squares) * (1 + 1 / count))
    return float(np.exp(width))


def _counts(batch: Batch, row: int, kind: str) -> bool:
    one = batch.jobs[row].measurement
    return one.scored and one.kind == kind
