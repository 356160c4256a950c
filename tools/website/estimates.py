"""Tables of published and estimated figures, which the site appends to ``docs/estimates.md``."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from calibration.fit import PRIORS, Figures, spread, values
from calibration.measurements import (
    BATCHED,
    KINDS,
    TRAINING,
    Measurement,
    measurements,
    rows_of,
)

from hpu_magic.estimates.cost.constants import FITTED, MEANINGS
from hpu_magic.estimates.cost.hardware import GENERATIONS, Generation
from website.text import table

_TOOLS = Path(__file__).parents[1]
_CONSTANTS = """\
The fit minimizes the squares of log(estimated / published) over the scored rows. Each constant has
an assumed value; a smaller factor keeps it closer to that value. A constant that no measurement
determines stays at its assumed value. If a family has more than six rows for a kind of work, these
rows count as six, because their errors are related.
"""
_HARDWARE = """\
Figures from the vendor's slides at Hot Chips 2024 (HC) and from its network guide. `hardware.py`
contains the figures that are derived from them.
"""
_MEMORY = """\
Peak memory of one card, and the largest batches that the vendor has used. The fit does not use
these figures, because memory is calculated from the traced step alone.
"""


def calculated(cache: Path, package: bytes) -> Figures:
    """Return the estimates of all measurements, which are recalculated only after a change.

    Parameters
    ----------
    cache : Path
        The folder that stores the estimates; outdated ones are deleted.
    package : bytes
        A digest of the installed packages.
    """
    digest = hashlib.sha256(package)
    for source in sorted((_TOOLS / "calibration").glob("*.*")):
        digest.update(source.read_bytes())
    cache.mkdir(parents=True, exist_ok=True)
    file = cache / f"{digest.hexdigest()[:16]}.json"
    for other in set(cache.iterdir()) - {file}:
        other.unlink()
    if not file.exists():
        with tempfile.TemporaryDirectory() as cards:
            done = subprocess.run(
                [sys.executable, str(_TOOLS / "estimates.py"), "figures"],
                env={**os.environ, "OMP_NUM_THREADS": "1", "HPU_MAGIC_CARDS_DIR": cards},
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
        file.write_text(done.stdout.splitlines()[-1])
    return Figures(**json.loads(file.read_text()))


def tables(figures: Figures | None = None) -> str:
    """Return the tables in Markdown; without estimates, only published values and constants."""
    measured = list(measurements())
    sections = [("Constants", _CONSTANTS + "\n" + _constants())]
    sections.append(("Hardware", _HARDWARE + "\n" + _hardware()))
    sections += [(kind[0].upper() + kind[1:], _rows(kind, measured, figures)) for kind in KINDS]
    sections.append(("Memory", _MEMORY + "\n" + _memory(figures)))
    if figures:
        sections = [
            ("Errors by kind of work and generation", _summary(measured, figures)),
            ("Errors by family, held out of the fit", _families(measured, figures)),
            *sections,
        ]
    return "\n".join(f"## {title}\n\n{text}" for title, text in sections)


def _constants() -> str:
    heads = ("constant", "value", "assumed", "within a factor of", "meaning")
    return table(
        heads,
        (
            (
                f"`{name}`",
                f"{value:.3g}",
                f"{PRIORS[name][0]:.3g}",
                f"{1 + PRIORS[name][1]:.2g}",
                MEANINGS[name.partition(".")[0]],
            )
            for name, value in values(FITTED).items()
        ),
    )


def _hardware() -> str:
    rows: dict[str, Callable[[Generation], str]] = {
        "matrix engines, bf16, TFLOP/s": lambda card: f"{card.matrix_flops['bf16'] / 1e12:.0f}",
        "fp8, TFLOP/s": lambda card: (
            f"{card.matrix_flops['fp8'] / 1e12:.0f}" if card.has_fp8 else "none"
        ),
        "vector processors, bf16, TFLOP/s": lambda card: f"{card.vector_flops / 1e12:.1f}",
        "memory, TB/s": lambda card: f"{card.memory_bandwidth / 1e12:.2f}",
        "memory for a process, GiB": lambda card: f"{card.memory / 2**30:.2f}",
        "links between two cards, GB/s": lambda card: f"{card.pair_bandwidth / 1e9:.1f}",
        "links to other machines, GB/s": lambda card: f"{card.scale_out_bandwidth / 1e9:.1f}",
    }
    return table(
        ("", *GENERATIONS),
        ((name, *map(text, GENERATIONS.values())) for name, text in rows.items()),
    )


def _rows(kind: str, measured: Sequence[Measurement], figures: Figures | None) -> str:
    """Return the measurements of one kind with their estimates and errors."""
    compared = ("estimated", "error", "held out") if figures else ()
    rows = []
    for index, one in enumerate(measured):
        if one.kind == kind:
            row = [one.row["model"], one.job, f"{one.value:.4g} {one.row['unit']}"]
            if figures:
                estimated = figures.estimated[index]
                row += [f"{estimated:.4g}", f"{estimated / one.value - 1:+.0%}"]
                row.append(f"{figures.held_out[index]:+.0%}")
            rows.append((*row, f"{one.row['trust']}, {one.row['source']}"))
    return table(("model", "job", "published", *compared, "trust, source"), rows)


def _memory(figures: Figures | None) -> str:
    compared = ("estimated", "error") if figures else ()
    rows = []
    for index, published in enumerate(rows_of("memory.tsv")):
        one = Measurement(published, TRAINING if published["new"] == "-" else BATCHED)
        row = [published["model"], one.job, f"{one.value:.4g} {published['unit']}"]
        if figures:
            estimated = figures.peaks[index]
            row += [f"{estimated:.4g}", f"{estimated / one.value - 1:+.0%}"]
        rows.append((*row, f"{published['trust']}, {published['source']}"))
    return table(("model", "job", "published", *compared, "trust, source"), rows)


def _summary(measured: Sequence[Measurement], figures: Figures) -> str:
    estimated = [
        estimate / one.value - 1 for one, estimate in zip(measured, figures.estimated, strict=True)
    ]
    rows = []
    for kind in KINDS:
        for generation in (None, *GENERATIONS):
            scored = [
                index
                for index, one in enumerate(measured)
                if one.scored and one.kind == kind and generation in (None, one.row["generation"])
            ]
            if scored:
                errors = [*_errors(estimated, scored), *_errors(figures.held_out, scored)]
                rows.append((generation or f"**{kind}**", str(len(scored)), *errors))
    heads = ("", "rows", "median", "9 of 10 within", "held out: median", "9 of 10 within")
    return table(heads, rows)


def _families(measured: Sequence[Measurement], figures: Figures) -> str:
    rows = []
    for family in sorted({one.family for one in measured}):
        for kind in (each for each in KINDS if each != family):
            scored = [
                index
                for index, one in enumerate(measured)
                if one.scored and one.kind == kind and one.family == family
            ]
            if scored:
                errors = _errors(figures.held_out, scored)
                rows.append((family, kind, str(len(scored)), *errors))
    return table(("family", "kind of work", "rows", "median", "9 of 10 within"), rows)


def _errors(errors: Sequence[float], indices: Iterable[int]) -> tuple[str, str]:
    """Return the median and the 90th percentile of the errors."""
    median, most, _ = spread([errors[index] for index in indices])
    return f"{median:.0%}", f"{most:.0%}"
