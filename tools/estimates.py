"""Fits the constants of estimates to published measurements, and writes docs/estimates.md.

``python tools/estimates.py``, which ``make tables`` runs, writes the page with the current
constants. ``python tools/estimates.py fit`` prints the best constants for `cost/constants.py`. Both
trace all measured models, which takes a few minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from calibration import page
from calibration.fit import error, fitted, held_out, spread, values
from calibration.measurements import KINDS, Job, job_of, measurements
from calibration.peaks import peaks

from hpu_magic import backend
from hpu_magic.estimates.cost.constants import FITTED, Constants

PAGE = Path(__file__).parent.parent / "docs" / "estimates.md"


def jobs() -> list[Job]:
    """Return the jobs of all measurements."""
    import torch

    backend.activate()
    import habana_frameworks.torch  # noqa: F401

    torch.zeros(1, device="hpu")
    return [job_of(measurement) for measurement in measurements()]


def residuals(measured: list[Job], constants: Constants) -> str:
    """Return constants and their residuals as text."""
    lines = [f"{name} = {value:.4g}" for name, value in values(constants).items()]
    for kind in KINDS:
        errors = [
            error(job, constants)
            for job in measured
            if job.measurement.kind == kind and job.measurement.scored
        ]
        median, most, bias = spread(errors)
        lines.append(f"{kind}: median {median:.1%}, 90 % within {most:.1%}, bias {bias:.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    found = jobs()
    if sys.argv[1:] == ["fit"]:
        print(residuals(found, fitted(found, FITTED)))
    else:
        text = page.page(found, FITTED, held_out(found, FITTED), list(peaks()))
        PAGE.write_text(text, encoding="utf-8")
        print(f"Wrote {PAGE}.")
