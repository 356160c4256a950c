"""The estimate of a step: time and memory with error bands, and their components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpu_magic import units
from hpu_magic.estimates import figures
from hpu_magic.estimates.by_module import ModuleShare
from hpu_magic.estimates.cost.bands import Band, band_of_inference, band_of_training
from hpu_magic.estimates.cost.hardware import Generation
from hpu_magic.estimates.cost.pricing import Prices, compile_seconds
from hpu_magic.estimates.largest_batch import MOST
from hpu_magic.estimates.layout import Layout
from hpu_magic.estimates.memory import Moment
from hpu_magic.estimates.options import Options
from hpu_magic.estimates.pictures import memory_picture, modules_picture
from hpu_magic.estimates.portable import Portable
from hpu_magic.estimates.tracing.program import Program, Role
from hpu_magic.estimates.tree import tree_html
from hpu_magic.runtime.present.report import Report, Row

_NAMES = {
    Role.WEIGHTS: "weights",
    Role.BUFFERS: "buffers",
    Role.GRADIENTS: "gradients",
    Role.OPTIMIZER: "optimizer",
    Role.ACTIVATIONS: "activations",
    Role.TEMPORARY: "temporary results",
    Role.INPUTS: "inputs",
}


@dataclass(frozen=True, repr=False)
class Estimate(Portable, Report):
    """Time and memory of a step on a card, displayed as a table and, in notebooks, with plots."""

    program: Program
    """The operations of the step."""
    model: str
    options: Options
    card: Generation
    layout: Layout
    prices: Prices
    """The costs of the operations, in program order."""
    memory_curve: Sequence[int]
    """The number of bytes in use on one card during each operation."""
    moment: Moment
    exchanged: int
    """Size in bytes of one card's buffers for exchanging gradients and weights."""
    modules: ModuleShare
    """Tree of modules with the time and memory of each one."""
    find_largest: Callable[[], int]
    largest: int | None = field(default=None)

    @property
    def seconds(self) -> float:
        """Time of a step, including all accumulated batches, in seconds."""
        return self.prices.seconds

    @property
    def compile_seconds(self) -> float:
        """Compilation time, which is added to the first step, in seconds."""
        return compile_seconds(self.program, self.options.mode)

    @property
    def batch(self) -> int:
        """Number of samples per card and pass."""
        return self.program.samples

    @property
    def samples_per_second(self) -> float:
        """Total number of samples per second on all cards."""
        passes = self.options.accumulate * self.layout.data
        return self.batch * passes / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Total number of tokens per second on all cards; 0 if the inputs do not contain tokens."""
        if not self.program.samples:
            return 0.0
        return self.samples_per_second * self.program.tokens / self.program.samples

    @property
    def peak(self) -> int:
        """Peak memory usage of one card, in bytes."""
        return self.moment.bytes + self.exchanged

    @property
    def memory(self) -> dict[str, int]:
        """The components of `peak`, in bytes."""
        held = {name: self.moment.by_role.get(role, 0) for role, name in _NAMES.items()}
        held["buffers of collectives"] = self.exchanged
        return {name: count for name, count in held.items() if count}

    @property
    def by_kind(self) -> dict[str, float]:
        """`seconds`, split by the resource that limits them."""
        return self.prices.by_kind

    @property
    def fits(self) -> bool:
        """Whether the step fits in a card's memory."""
        return self.peak <= self.card.memory

    @property
    def largest_batch(self) -> int:
        """Largest batch (first dimension of the inputs) that fits on a card; 0 if none fits."""
        return self.searched()

    @property
    def band(self) -> tuple[float, float]:
        """Range in which a measurement is expected, in multiples of `seconds`."""
        return self.limits.low, self.limits.high

    @property
    def limits(self) -> Band:
        """The band, and the measurements on which it is based."""
        options = self.options
        if options.train:
            return band_of_training(self.layout, options.mode, options.dtype)
        return band_of_inference(self.batch, 1, self.layout, self.card, options.dtype)

    @property
    def memory_text(self) -> str:
        """The formatted peak memory usage and memory size of a card."""
        return figures.memory(self.peak, self.card.memory)

    def title(self) -> str:
        """Return the headline."""
        options = self.options
        kind = "training step" if options.train else "forward pass"
        cards = "" if self.layout.cards == 1 else f"{self.layout.cards} x "
        how = [f"{options.mode} mode", options.dtype, f"batch {self.batch}"]
        if options.train:
            how.append(options.optimizer)
        if self.layout.cards > 1:
            how.append(str(self.layout))
        if options.accumulate > 1:
            how.append(f"{options.accumulate} accumulated")
        if options.attention == "fused":
            how.append("fused attention")
        if options.step.checkpointing != "none":
            how.append(f"{options.step.checkpointing} checkpointing")
        return f"Estimate: {kind} of {self.model} on {cards}{self.card.name} ({', '.join(how)})"

    def rows(self) -> Sequence[Row]:
        """Return the time and memory with error bands, and their components."""
        shown = [
            ("step", figures.duration(self.seconds, self.band)),
            ("throughput", figures.rate(self.samples_per_second, "samples", self.band)),
        ]
        if self.program.tokens:
            shown.append(("", figures.rate(self.tokens_per_second, "tokens", self.band)))
        shown += figures.compilation(self.compile_seconds)
        verdict = "fits" if self.fits else "does not fit"
        shown.append(("memory of a card", f"{self.memory_text}, {verdict}"))
        shown += [(f"  {name}", units.size(count)) for name, count in self.memory.items()]
        return [*shown, *figures.times(self.by_kind), *figures.slowest(self.modules)]

    def notes(self) -> Sequence[str]:
        """Return notes that explain the estimate."""
        notes = [figures.note(f"published measurements of {self.limits.rows}")]
        if self.largest == MOST:
            notes.append(f"The search for the largest batch stops at {MOST}, which fits.")
        return notes

    def warnings(self) -> Sequence[str]:
        """Suggest changes if the step does not fit in memory."""
        if self.fits:
            return ()
        over = units.size(self.peak - self.card.memory)
        return (
            f"The step needs {over} more memory than a card has: use a smaller batch, "
            'checkpointing="full", or more cards with parallel="zero3".',
        )

    def _repr_html_(self) -> str:
        memory = memory_picture(self.program, self.prices, self.card, self.memory_curve)
        modules = modules_picture(self.modules)
        return f"{super()._repr_html_()}{memory}{modules}{tree_html(self.modules)}"
