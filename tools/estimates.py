"""Fits the constants of estimates to published measurements, and checks their errors.

``python tools/estimates.py choose`` chooses the regularization of the fit with two levels of
families that are left out, and prints the errors and bands that it expects for other families.
``python tools/estimates.py fit`` prints the best constants for `cost/constants.py` with this
regularization, and their errors. After changing the constants, also update the bands, and the
errors in ``docs/estimates.md``.
``python tools/estimates.py figures`` prints the estimate for each measurement as JSON, for the
documentation site. Each of these commands traces all measured models, which takes a few minutes.
``python tools/estimates.py programs [NAME...]`` runs the measured training jobs as programs in dry
runs, and writes their times into the table in ``docs/estimates.md``. Only jobs that contain one of
the names run.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from math import log, log1p

import numpy as np
from calibration.batch import Batch
from calibration.fit import Figures, errors_of, fitted, held_out, spread, values
from calibration.measurements import KINDS, job_of, measurements
from calibration.peaks import peaks
from calibration.programs import compared
from calibration.selection import Errors, Selection, band, candidates

from hpu_magic import backend
from hpu_magic.estimates.cost.constants import FITTED, Constants


def _activate() -> None:
    import torch

    backend.activate()
    import habana_frameworks.torch  # noqa: F401

    torch.zeros(1, device="hpu")


def residuals(measured: Batch, constants: Constants) -> str:
    """Return the constants and their residuals as text."""
    lines = [f"{name} = {value:.4g}" for name, value in values(constants).items()]
    errors = errors_of(measured, constants)
    return "\n".join([*lines, *(_summary(measured, errors, kind) for kind in KINDS)])


def choice(measured: Batch) -> str:
    """Return the best regularization, and the errors expected for other families, as text."""
    selection = Selection(measured, candidates())
    chosen, found = selection.nested()
    lines = [f"best: {selection.best()}"]
    lines += [f"without {family}: {name}" for family, name in chosen.items()]
    for kind in KINDS:
        factors = ", ".join(
            f"{share:.0%} within a factor of {band(measured, found, kind, share):.2f}"
            for share in (0.8, 0.9)
        )
        lines.append(f"{_summary(measured, found, kind)}; expected: {factors}")
    return "\n".join(lines)


def _summary(measured: Batch, errors: Errors, kind: str) -> str:
    """Return the sizes of the errors for a kind of work, and how many are inside the bands."""
    ones = [
        (error, job.measurement.band)
        for job, error in zip(measured.jobs, errors, strict=True)
        if job.measurement.kind == kind and job.measurement.scored
    ]
    median, most, bias = spread([error for error, _ in ones])
    inside = [abs(log1p(error)) <= log(band) for error, band in ones if band is not None]
    text = f"{kind}: median {median:.1%}, 90 % within {most:.1%}, bias {bias:.3f}"
    return f"{text}, {np.mean(inside):.0%} of {len(ones)} inside the band" if inside else text


def figures(measured: Batch) -> Figures:
    """Return the estimates of all measurements with the current constants."""
    return Figures(
        [float(each) for each in measured.estimates(FITTED)],
        held_out(measured),
        list(peaks()),
    )


def main() -> None:
    """Run the task of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("choose", "fit", "figures", "programs"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of jobs for `programs`")
    options = parser.parse_args()
    _activate()
    if options.task == "programs":
        for each in compared(options.names):
            print(" | ".join(each.cells), flush=True)
        return
    all_jobs = Batch([job_of(measurement) for measurement in measurements()])
    if options.task == "choose":
        print(choice(all_jobs))
    elif options.task == "fit":
        print(residuals(all_jobs, fitted(all_jobs)))
    else:
        print(json.dumps(asdict(figures(all_jobs))))


if __name__ == "__main__":
    main()
