"""docs/estimates.md as text: what is published, what is estimated, and how far they are apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from calibration.fit import PRIORS, error, spread, values
from calibration.measurements import KINDS, Asked
from calibration.peaks import Peak
from hpu_magic.estimate.cost.constants import MEANINGS, Constants
from hpu_magic.estimate.cost.hardware import GENERATIONS

Errors = Mapping[int, float]

_HEAD = """\
# How far estimates are from measurements

Written by `make tables` from the measurements in `tools/calibration/` and the constants in
`hpu_magic/estimate/cost/constants.py`. No figure here was measured by this project: it has no card.

What is published is told apart from what is estimated. An error of +20 % says that the estimated
speed is a fifth too high. Rows of trust *h* are reproducible benchmarks or logs, of *m* their
settings are partly assumed, of *l* or *loader* something else than the card bounds them: those are
shown, and neither fitted nor counted, as are those *superseded* by a newer release's figure for the
same job. *Left out* is the error with constants that are fitted to all other families of models, so
that no row of the model's own has been seen. Which constants there are, what is assumed of them and
how rows are weighed was chosen with these errors in view: expect somewhat more of other families.
"""

_SOURCES = """\
## Sources

G2I, G2T, G3: the vendor's pages of model performance (Gaudi2 inference, Gaudi2 training, Gaudi3;
releases 1.18 and 1.19, of G2T the release that is named) at intel.com. 1.0, 1.16: the same at
developer.habana.ai for those releases. REF, OHT: the vendor's tables of its reference models and of
optimum-habana. PERF: NAVER-INTEL-Co-Lab/gaudi-perf, `matmul/README.md`. FX: baselines of
optimum-habana's tests (for release 1.22, many older). HBL: "BLOOMZ on Habana Gaudi2", a blog entry
at Hugging Face (release 1.8). TUT: notebooks of HabanaAI/Gaudi-tutorials. HC: "Intel Gaudi 3", Hot
Chips 2024.
"""

_LIMITS = """\
## What is not covered

- The aim for families that are left out is a median of 15 % in training, 10 % in batched and 6 % in
  batch-1 generation: the first table says which is met. Where one is not, an estimate's band is as
  wide as nine of ten of these errors.
- Memory of training with adapters: one row, estimated a third too low and more. What else lay on
  that card is not published.
- Batch-1 generation over several cards of the first generation: one row, estimated far too fast.
- ZeRO costs five times its bare collectives in what was measured, three times that of DDP and more:
  why is not published, and other ways to shard may do better.
- Input pipelines, validation and checkpoints. What is compiled at first is told from one log.
- Pipelines and tensor parallelism in training are measured for one family of models only, and
  collectives between machines for few jobs.
- `torch.compile` with FSDP: few rows, all estimated too fast; the band is wider there.
- Convolutions are measured on the first generation alone; diffusion, mixtures of experts, state
  spaces and recurrent nets not at all.
- No peak is published for float32 in the matrix engines: a quarter of bf16 is assumed.
- The clock of the first generation's vector processors is not published: 1.35 GHz is assumed.
- Microbatches of pre-training (one sample each) and places of cards in groups are assumed.
- Releases of the vendor's software differ by 3 to 13 % for one job.
"""


def page(
    asked: Sequence[Asked], constants: Constants, held_out: Errors, memory: Sequence[Peak]
) -> str:
    """Return the page.

    Parameters
    ----------
    asked : sequence of Asked
        The measurements.
    constants : Constants
        Those in use.
    held_out : mapping from int to float
        Error of each measurement, by its place, with constants fitted to other families.
    memory : sequence of Peak
        Peaks of memory.
    """
    with_all = {place: error(one, constants) for place, one in enumerate(asked)}
    parts = [_HEAD, _summary(asked, with_all, held_out), _families(asked, held_out)]
    parts += [constants_table(constants), _hardware()]
    for kind in KINDS:
        parts.append(_rows(kind, asked, constants, with_all, held_out))
    return "\n".join([*parts, _memory(memory), _LIMITS, _SOURCES])


def _memory(peaks: Sequence[Peak]) -> str:
    lines = [
        "## Memory\n",
        "Peaks of one card, and the largest batches that the vendor has used. Nothing is fitted to "
        "them: bytes follow from the traced step.\n",
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


def _summary(asked: Sequence[Asked], with_all: Errors, held_out: Errors) -> str:
    lines = [
        "## Errors by kind of work and generation\n",
        "| | rows | median | 9 of 10 within | left out: median | 9 of 10 within |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for generation in (None, *GENERATIONS):
            places = _places(
                asked,
                lambda one, kind=kind, generation=generation: (
                    one.kind == kind and generation in (None, one.row["generation"])
                ),
            )
            if places:
                name = f"**{kind}**" if generation is None else generation
                fit, apart = (_spread(errors, places) for errors in (with_all, held_out))
                lines.append(f"| {name} | {len(places)} | {fit} | {apart} |")
    return "\n".join(lines) + "\n"


def _families(asked: Sequence[Asked], held_out: Errors) -> str:
    lines = [
        "## Errors of each family, left out of the fit\n",
        "| family | kind of work | rows | median | 9 of 10 within |",
        "|---|---|---|---|---|",
    ]
    for family in sorted({one.measurement.family for one in asked}):
        for kind in (one for one in KINDS if one != family):
            places = _places(
                asked,
                lambda one, kind=kind, family=family: one.kind == kind and one.family == family,
            )
            if places:
                spread_of = _spread(held_out, places)
                lines.append(f"| {family} | {kind} | {len(places)} | {spread_of} |")
    return "\n".join(lines) + "\n"


def _places(asked: Sequence[Asked], wanted: Callable[..., bool]) -> list[int]:
    return [
        place
        for place, one in enumerate(asked)
        if one.measurement.scored and wanted(one.measurement)
    ]


def _spread(errors: Errors, places: Sequence[int]) -> str:
    median, most, _ = spread([errors[place] for place in places])
    return f"{median:.0%} | {most:.0%}"


def constants_table(constants: Constants) -> str:
    """Return the section on the constants."""
    lines = [
        "## Constants\n",
        "Fitted to all rows that count, by least squares of the logarithm of estimated over "
        "published; each is held to an assumption as strongly as its factor says, which is where "
        "one is that no measurement tells. Rows of one family and kind of work count as six where "
        "they are more, since they err together.\n",
        "| constant | value | assumed | within a factor of | what it is |",
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
        "As published (HC, and the vendor's network guide); `hardware.py` has what is derived.\n",
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
        "links of a pair of cards, GB/s": lambda one: f"{one.pair_bandwidth / 1e9:.1f}",
        "links to other machines, GB/s": lambda one: f"{one.scale_out_bandwidth / 1e9:.1f}",
    }
    for name, text in rows.items():
        lines.append(f"| {name} | " + " | ".join(text(one) for one in GENERATIONS.values()) + " |")
    return "\n".join(lines) + "\n"


def _rows(
    kind: str,
    asked: Sequence[Asked],
    constants: Constants,
    with_all: Errors,
    held_out: Errors,
) -> str:
    lines = [
        f"## {kind[0].upper()}{kind[1:]}\n",
        "| model | job | published | estimated | error | left out | trust, source |",
        "|---|---|---|---|---|---|---|",
    ]
    for place, one in enumerate(asked):
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
