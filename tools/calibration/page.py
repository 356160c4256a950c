"""The text of docs/estimates.md: published and estimated figures, and their differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from calibration.fit import PRIORS, error, spread, values
from calibration.measurements import KINDS, Job
from calibration.peaks import Peak
from hpu_magic.estimates.cost.constants import MEANINGS, Constants
from hpu_magic.estimates.cost.hardware import GENERATIONS

Errors = Mapping[int, float]

_HEAD = """\
# Accuracy of estimates

This page compares estimates of `%hpu_estimate` with published measurements. The project has no
card and measured none of these figures.

The tables have these columns:

- *error*: +20 % means that the estimated speed is 20 % too high.
- *left out*: the error if the constants are fitted to all other families of models, so that the fit
  has not seen this family.
- *trust*:
  - *h*: a reproducible benchmark or log.
  - *m*: some settings are assumed.
  - *l*, *loader*: something other than the card limits the speed.
  - *superseded*: a newer release has a figure for the same job.

Rows with *l*, *loader* or *superseded* are shown, but the fit and the error statistics do not use
them. The constants, their assumed values and the weights of rows were chosen with these errors in
view, so expect slightly larger errors for other families.

`make tables` writes this page from the measurements in `tools/calibration/` and the constants in
`hpu_magic/estimates/cost/constants.py`.
"""

_SOURCES = """\
## Sources

- G2I, G2T, G3: the vendor's model performance pages at intel.com for Gaudi2 inference, Gaudi2
  training and Gaudi3 (releases 1.18 and 1.19; G2T rows name their release).
- 1.0, 1.16: the same pages at developer.habana.ai for these releases.
- REF, OHT: the vendor's tables of its reference models and of optimum-habana.
- PERF: NAVER-INTEL-Co-Lab/gaudi-perf, `matmul/README.md`.
- FX: baselines of optimum-habana's tests (for release 1.22; many are older).
- HBL: "BLOOMZ on Habana Gaudi2", Hugging Face blog (release 1.8).
- TUT: notebooks of HabanaAI/Gaudi-tutorials.
- HC: "Intel Gaudi 3", Hot Chips 2024.
"""

_LIMITS = """\
## Limits

- The goal for left-out families is a median error of 15 % in training, 10 % in batched generation
  and 6 % in batch-1 generation. The first table shows which goals are met. If a goal is not met,
  the band of an estimate covers nine of ten of these errors.
- Memory of training with adapters: only one row, estimated more than a third too low. It is not
  published what else was in that card's memory.
- Batch-1 generation on several cards of the first generation: only one row, estimated far too fast.
- ZeRO: in the measurements, it adds five times the duration of its collectives alone, more than
  three times as much as DDP. The reason is not published. Other ways to shard may be faster.
- Input pipelines, validation and checkpoints are not included. The time of first compilations is
  based on one log.
- Pipeline and tensor parallelism in training are measured for only one family of models, and
  collectives between machines for only a few jobs.
- `torch.compile` with FSDP: few rows, all estimated too fast. The band is wider for these jobs.
- Convolutions are measured only on the first generation. Diffusion, mixtures of experts, state
  space models and recurrent networks are not measured.
- The float32 peak of the matrix engines is not published. A quarter of bf16 is assumed.
- The clock of the first generation's vector processors is not published. 1.35 GHz is assumed.
- Microbatches of pre-training (one sample each) and the placement of cards in groups are assumed.
- Results for the same job differ by 3 to 13 % between releases of the vendor's software.
"""


def page(
    jobs: Sequence[Job], constants: Constants, held_out: Errors, memory: Sequence[Peak]
) -> str:
    """Return the page.

    Parameters
    ----------
    jobs : sequence of Job
        The measurements.
    constants : Constants
        The current constants.
    held_out : mapping from int to float
        Error of each measurement by its index, with constants fitted to other families.
    memory : sequence of Peak
        Measurements of memory.
    """
    with_all = {place: error(one, constants) for place, one in enumerate(jobs)}
    parts = [_HEAD, _summary(jobs, with_all, held_out), _families(jobs, held_out)]
    parts += [constants_table(constants), _hardware()]
    for kind in KINDS:
        parts.append(_rows(kind, jobs, constants, with_all, held_out))
    return "\n".join([*parts, _memory(memory), _LIMITS, _SOURCES])


def _memory(peaks: Sequence[Peak]) -> str:
    lines = [
        "## Memory\n",
        "Peak memory of one card, and the largest batches that the vendor has used. These figures "
        "are not used for the fit: the bytes result from the traced step.\n",
        "| model | job | published | estimated | error | trust, source |",
        "|---|---|---|---|---|---|",
    ]
    for one in peaks:
        row, published = one.measurement.row, one.measurement.value
        wrong = one.estimated / published - 1
        lines.append(
            f"| {row['model']} | {one.measurement.job} | {published:.4g} {row['unit']} | "
            f"{one.estimated:.4g} | {wrong:+.0%} | {row['trust']}, {row['source']} |"
        )
    return "\n".join(lines) + "\n"


def _summary(jobs: Sequence[Job], with_all: Errors, held_out: Errors) -> str:
    lines = [
        "## Errors by kind of work and generation\n",
        "| | rows | median | 9 of 10 within | left out: median | 9 of 10 within |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for generation in (None, *GENERATIONS):
            places = _places(
                jobs,
                lambda one, kind=kind, generation=generation: (
                    one.kind == kind and generation in (None, one.row["generation"])
                ),
            )
            if places:
                name = f"**{kind}**" if generation is None else generation
                fit, apart = (_spread(errors, places) for errors in (with_all, held_out))
                lines.append(f"| {name} | {len(places)} | {fit} | {apart} |")
    return "\n".join(lines) + "\n"


def _families(jobs: Sequence[Job], held_out: Errors) -> str:
    lines = [
        "## Errors by family, left out of the fit\n",
        "| family | kind of work | rows | median | 9 of 10 within |",
        "|---|---|---|---|---|",
    ]
    for family in sorted({one.measurement.family for one in jobs}):
        for kind in (one for one in KINDS if one != family):
            places = _places(
                jobs,
                lambda one, kind=kind, family=family: one.kind == kind and one.family == family,
            )
            if places:
                spread_of = _spread(held_out, places)
                lines.append(f"| {family} | {kind} | {len(places)} | {spread_of} |")
    return "\n".join(lines) + "\n"


def _places(jobs: Sequence[Job], wanted: Callable[..., bool]) -> list[int]:
    return [
        place
        for place, one in enumerate(jobs)
        if one.measurement.scored and wanted(one.measurement)
    ]


def _spread(errors: Errors, places: Sequence[int]) -> str:
    median, most, _ = spread([errors[place] for place in places])
    return f"{median:.0%} | {most:.0%}"


def constants_table(constants: Constants) -> str:
    """Return the section on the constants."""
    lines = [
        "## Constants\n",
        "The fit minimizes the squares of log(estimated / published) over the rows that it uses. "
        "Each constant has an assumed value; a smaller factor holds it closer to that value. A "
        "constant that no measurement determines stays at its assumed value. If a family has more "
        "than six rows for a kind of work, these rows count as six, because their errors are "
        "related.\n",
        "| constant | value | assumed | within a factor of | meaning |",
        "|---|---|---|---|---|",
    ]
    for name, value in values(constants).items():
        prior, width = PRIORS[name]
        meaning = MEANINGS[name.partition(".")[0]]
        lines.append(f"| `{name}` | {value:.3g} | {prior:.3g} | {1 + width:.2g} | {meaning} |")
    return "\n".join(lines) + "\n"


def _hardware() -> str:
    lines = [
        "## Hardware\n",
        "Published figures (HC and the vendor's network guide). `hardware.py` contains derived "
        "figures.\n",
        "| | " + " | ".join(GENERATIONS) + " |",
        "|---" * (len(GENERATIONS) + 1) + "|",
    ]
    rows: dict[str, Callable[..., str]] = {
        "matrix engines, bf16, TFLOP/s": lambda one: f"{one.matrix_flops['bf16'] / 1e12:.0f}",
        "fp8, TFLOP/s": lambda one: (
            f"{one.matrix_flops['fp8'] / 1e12:.0f}" if one.has_fp8 else "none"
        ),
        "vector processors, bf16, TFLOP/s": lambda one: f"{one.vector_flops / 1e12:.1f}",
        "memory, TB/s": lambda one: f"{one.memory_bandwidth / 1e12:.2f}",
        "memory for a process, GiB": lambda one: f"{one.memory / 2**30:.2f}",
        "links between two cards, GB/s": lambda one: f"{one.pair_bandwidth / 1e9:.1f}",
        "links to other machines, GB/s": lambda one: f"{one.scale_out_bandwidth / 1e9:.1f}",
    }
    for name, text in rows.items():
        lines.append(f"| {name} | " + " | ".join(text(one) for one in GENERATIONS.values()) + " |")
    return "\n".join(lines) + "\n"


def _rows(
    kind: str,
    jobs: Sequence[Job],
    constants: Constants,
    with_all: Errors,
    held_out: Errors,
) -> str:
    lines = [
        f"## {kind[0].upper()}{kind[1:]}\n",
        "| model | job | published | estimated | error | left out | trust, source |",
        "|---|---|---|---|---|---|---|",
    ]
    for place, one in enumerate(jobs):
        measured = one.measurement
        if measured.kind != kind:
            continue
        unit = measured.row["unit"]
        lines.append(
            f"| {measured.row['model']} | {measured.job} | {measured.value:.4g} {unit} | "
            f"{one.estimate(constants):.4g} | {with_all[place]:+.0%} | {held_out[place]:+.0%} | "
            f"{measured.row['trust']}, {measured.row['source']} |"
        )
    return "\n".join(lines) + "\n"
