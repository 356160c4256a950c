"""Fits the constants of estimates to published measurements, and writes docs/estimates.md.

``python tools/estimates.py``, as in ``make tables``, writes the page with the constants there are;
``python tools/estimates.py fit`` prints those that fit best, for `cost/constants.py`. All measured
models are traced, which takes a few minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from calibration import page
from calibration.fit import error, fitted, held_out, spread, values
from calibration.measurements import KINDS, Asked, asked_of, measurements
from calibration.peaks import peaks

from hpu_magic import backend
from hpu_magic.estimates.cost.constants import FITTED, Constants

PAGE = Path(__file__).parent.parent / "docs" / "estimates.md"


def collected() -> list[Asked]:
    """Return what each measurement asks of its cards."""
    import torch

    backend.activate()
    import habana_frameworks.torch  # noqa: F401

    torch.zeros(1, device="hpu")
    return [asked_of(one) for one in measurements()]


def told(asked: list[Asked], constants: Constants) -> str:
    """Return constants and their residuals, as text."""
    lines = [f"{name} = {value:.4g}" for name, value in values(constants).items()]
    for kind in KINDS:
        errors = [
            error(one, constants)
            for one in asked
            if one.measurement.kind == kind and one.measurement.scored
        ]
        median, most, bias = spread(errors)
        lines.append(f"{kind}: median {median:.1%}, 90 % within {most:.1%}, bias {bias:.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    found = collected()
    if sys.argv[1:] == ["fit"]:
        print(told(found, fitted(found, FITTED)))
    else:
        text = page.page(found, FITTED, held_out(found, FITTED), list(peaks()))
        PAGE.write_text(text, encoding="utf-8")
        print(f"{PAGE} is written.")
