"""An estimate as the user sees it: figures with their band, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpu_magic import units
from hpu_magic.estimates import figures
from hpu_magic.estimates.by_module import ModuleShare
from hpu_magic.estimates.cost.compilation import compile_seconds
from hpu_magic.estimates.cost.hardware import Generation
from hpu_magic.estimates.cost.pricing import Prices
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
    """What a step takes on a card; `print` shows it as a table, a notebook with pictures."""

    program: Program
    """The operations that were priced."""
    model: str
    options: Options
    card: Generation
    layout: Layout
    prices: Prices
    """What each of the operations costs, in their order."""
    memory_curve: Sequence[int]
    """Bytes in use on one card while each operation runs."""
    moment: Moment
    exchanged: int
    """Bytes that a card keeps for the exchange of gradients and weights with others."""
    modules: ModuleShare
    """Time and memory by module, as a tree."""
    find_largest: Callable[[], int]
    largest: int | None = field(default=None)

    @property
    def seconds(self) -> float:
        """Seconds that a step takes, with all the batches that it accumulates."""
        return self.prices.seconds

    @property
    def compile_seconds(self) -> float:
        """Seconds that the first step takes longer, in which its graph is compiled."""
        return compile_seconds(self.program, self.options.mode)

    @property
    def batch(self) -> int:
        """Samples of one card in one pass."""
        return self.program.samples

    @property
    def samples_per_second(self) -> float:
        """Samples a second, over all cards."""
        passes = self.options.accumulate * self.layout.data
        return self.batch * passes / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second over all cards; 0 where the inputs are none."""
        if not self.program.samples:
            return 0.0
        return self.samples_per_second * self.program.tokens / self.program.samples

    @property
    def peak_memory(self) -> int:
        """Bytes of one card in use at the moment of most."""
        return self.moment.bytes + self.exchanged

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of `peak_memory` by what they hold."""
        held = {name: self.moment.by_role.get(role, 0) for role, name in _NAMES.items()}
        held["buffers of collectives"] = self.exchanged
        return {name: count for name, count in held.items() if count}

    @property
    def fits(self) -> bool:
        """Whether a card has that much memory."""
        return self.peak_memory <= self.card.memory

    @property
    def largest_batch(self) -> int:
        """Largest size of the inputs' first dimension that fits a card; 0 if not even 1 does."""
        if self.largest is None:
            object.__setattr__(self, "largest", self.find_largest())
        assert self.largest is not None
        return self.largest

    @property
    def band(self) -> tuple[float, float]:
        """Low and high factor between which a measurement of `seconds` is expected."""
        return self.prices.band

    @property
    def memory_text(self) -> str:
        """Peak memory next to what a card has."""
        return figures.memory(self.peak_memory, self.card.memory)

    def title(self) -> str:
        """Return the headline."""
        options = self.options
        what = "training step" if options.train else "forward pass"
        cards = "" if self.layout.cards == 1 else f"{self.layout.cards} x "
        how = [f"{options.mode} mode", options.precision, f"batch {self.batch}"]
        if options.train:
            how.append(options.optimizer)
        if self.layout.cards > 1:
            how.append(str(self.layout))
        if options.accumulate > 1:
            how.append(f"{options.accumulate} accumulated")
        if options.step.checkpointing != "none":
            how.append(f"{options.step.checkpointing} checkpointing")
        return f"Estimate: a {what} of {self.model} on {cards}{self.card.name} ({', '.join(how)})"

    def rows(self) -> Sequence[Row]:
        """Return the figures, each with its band, and what they are made of."""
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
        return [*shown, *figures.times(self.prices.by_kind), *figures.slowest(self.modules)]

    def notes(self) -> Sequence[str]:
        """Return what an estimate is."""
        said = [figures.note("published measurements of this kind of work")]
        if self.largest == MOST:
            said.append(f"No batch above {MOST} was looked for: all of them fit.")
        return said

    def warnings(self) -> Sequence[str]:
        """Return what must be changed for it to run at all."""
        if self.fits:
            return ()
        over = units.size(self.peak_memory - self.card.memory)
        return (
            f'{over} more than a card has: a smaller batch, checkpointing="full", or more cards '
            'with parallel="zero3" make it fit.',
        )

    def _repr_html_(self) -> str:
        pictures = memory_picture(self), modules_picture(self)
        return f"{super()._repr_html_()}{''.join(pictures)}{tree_html(self.modules)}"
