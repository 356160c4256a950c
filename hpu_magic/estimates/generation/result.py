"""An estimate of generation as the user sees it: figures with their band, and their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.estimates import figures
from hpu_magic.estimates.by_module import ModuleShare, shares
from hpu_magic.estimates.generation.bands import Band
from hpu_magic.estimates.generation.memory import Memory
from hpu_magic.estimates.generation.settings import Settings
from hpu_magic.estimates.generation.times import Times
from hpu_magic.estimates.portable import Portable
from hpu_magic.runtime.present.report import Report, Row


@dataclass(frozen=True, repr=False)
class GenerationEstimate(Portable, Report):
    """How fast text is generated, and what memory it takes; `print` shows it as a table."""

    model: str
    settings: Settings
    batch: int
    """Sequences generated at once, over all cards."""
    times: Times
    memory: Memory
    find_largest: Callable[[], int]
    limits: Band
    largest: int | None = None
    modules: ModuleShare = field(init=False)
    """Time by module, as a tree, for the prompt and all new tokens."""

    def __post_init__(self) -> None:
        """Add up the time of each module."""
        classes = self.times.prompt.program.classes
        object.__setattr__(self, "modules", shares(classes, self.times.by_operation(), {}))

    def __getstate__(self) -> dict[str, Any]:
        # The table shows it, and only here is the model that tells it.
        _ = self.largest_batch
        return super().__getstate__()

    @property
    def first_token_seconds(self) -> float:
        """Seconds from the prompts to the first new token of each sequence."""
        return self.times.first_token

    @property
    def token_seconds(self) -> float:
        """Seconds of a step that adds a token to each sequence, on average."""
        return self.times.token

    @property
    def seconds(self) -> float:
        """Seconds of the whole generation."""
        return self.times.total

    @property
    def compile_seconds(self) -> float:
        """Seconds in which the graphs of all its shapes are compiled, when they are met first."""
        return self.times.compilation

    @property
    def tokens_per_second(self) -> float:
        """New tokens a second over all cards, the prompt's time included."""
        return self.batch * self.settings.new_tokens / self.seconds

    @property
    def peak_memory(self) -> int:
        """Bytes of one card in use at the moment of most."""
        return self.memory.total

    @property
    def largest_batch(self) -> int:
        """Largest number of sequences that fits, over all cards; 0 if not even one does."""
        if self.largest is None:
            object.__setattr__(self, "largest", self.find_largest())
        assert self.largest is not None
        return self.largest

    @property
    def fits(self) -> bool:
        """Whether a card has that much memory."""
        return self.peak_memory <= self.settings.card.memory

    @property
    def band(self) -> tuple[float, float]:
        """Low and high factor between which a measurement of `seconds` is expected."""
        return self.limits.low, self.limits.high

    @property
    def by_kind(self) -> dict[str, float]:
        """`seconds` by what they are spent on."""
        return self.times.by_kind

    def title(self) -> str:
        """Return the headline."""
        one = self.settings
        cards = "" if one.layout.cards == 1 else f"{one.layout.cards} x "
        how = [f"{one.mode} mode", one.precision, f"cache {one.cache}, {one.kv_dtype}"]
        how.append(f"batch {self.batch}")
        if one.layout.cards > 1:
            how.append(str(one.layout))
        return (
            f"Estimate: {self.model} makes {one.new_tokens} tokens behind {one.prompt} on {cards}"
            f"{one.card.name} ({', '.join(how)})"
        )

    def rows(self) -> Sequence[Row]:
        """Return the figures, each with its band, and what they are made of."""
        return [
            ("first token", figures.duration(self.first_token_seconds, self.band)),
            ("each token", figures.duration(self.token_seconds, self.band)),
            ("throughput", figures.rate(self.tokens_per_second, "tokens", self.band)),
            *figures.compilation(self.compile_seconds),
            ("memory of a card", f"{self._usage()}, {'fits' if self.fits else 'does not fit'}"),
            *(
                (f"  {name}", units.size(size))
                for name, size in self.memory.parts().items()
                if size
            ),
            ("largest batch", f"{self.largest_batch} (estimate)"),
            *figures.times(self.by_kind),
            *figures.slowest(self.modules),
        ]

    def notes(self) -> Sequence[str]:
        """Return what an estimate is."""
        return (figures.note(f"published measurements of {self.limits.rows}"),)

    def warnings(self) -> Sequence[str]:
        """Return what must be changed for it to run at all."""
        if self.fits:
            return ()
        return (over_memory(self.memory, self.settings),)

    def _usage(self) -> str:
        return figures.memory(self.peak_memory, self.settings.card.memory)


def over_memory(memory: Memory, settings: Settings) -> str:
    """Say by how much a card is too small, and what would help."""
    over = units.size(memory.total - settings.card.memory)
    mends = ["a smaller batch"] if settings.batch not in (1, "largest") else []
    if memory.weights > memory.cache:
        if settings.precision != "fp8" and settings.card.has_fp8:
            mends.append('dtype="fp8"')
    elif settings.kv_dtype != "fp8" and settings.card.has_fp8:
        mends.append('cache_dtype="fp8"')
    needed = settings.layout.tensor
    while needed * settings.card.memory < settings.layout.tensor * memory.total:
        needed *= 2
    mends.append(f'parallel="tp={needed}" with {needed} cards')
    return (
        f"{units.size(memory.total)} are needed on a card, {over} more than a {settings.card.name} "
        f"has: {' or '.join(mends)} would make it fit."
    )
