"""The estimate of text generation: time and memory with error bands, and their components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.estimates import figures
from hpu_magic.estimates.by_module import ModuleShare, shares
from hpu_magic.estimates.cost.bands import Band
from hpu_magic.estimates.generation.memory import GenerationMemory
from hpu_magic.estimates.generation.settings import GenerationSettings
from hpu_magic.estimates.generation.times import Times
from hpu_magic.estimates.portable import Portable
from hpu_magic.runtime.present.report import Report, Row


@dataclass(frozen=True, repr=False)
class GenerationEstimate(Portable, Report):
    """Estimated time and memory of text generation, displayed as a table."""

    model: str
    settings: GenerationSettings
    batch: int
    """Number of sequences that a card, or a group of cards that share the model, generates."""
    times: Times
    sizes: GenerationMemory
    find_largest: Callable[[], int]
    limits: Band
    largest: int | None = None
    modules: ModuleShare = field(init=False)
    """Tree of modules with the time that each one takes for the prompt and all new tokens."""

    def __post_init__(self) -> None:
        """Calculate the time that each module takes."""
        classes = self.times.prompt.program.classes
        object.__setattr__(self, "modules", shares(classes, self.times.by_operation(), {}))

    def __getstate__(self) -> dict[str, Any]:
        # The table shows the largest batch, but a copy has no model to calculate it with.
        _ = self.largest_batch
        return super().__getstate__()

    @property
    def first_token_seconds(self) -> float:
        """Time until the first new token of each sequence, in seconds."""
        return self.times.first_token

    @property
    def token_seconds(self) -> float:
        """Average time of a step that adds one token to each sequence, in seconds."""
        return self.times.token

    @property
    def seconds(self) -> float:
        """Total generation time, in seconds."""
        return self.times.total

    @property
    def compile_seconds(self) -> float:
        """Compilation time for all shapes, in seconds."""
        return self.times.compilation

    @property
    def samples_per_second(self) -> float:
        """Sequences per second on all cards."""
        return self.batch * self.settings.layout.data / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """New tokens per second on all cards; the time for the prompt is included."""
        return self.samples_per_second * self.settings.new_tokens

    @property
    def peak(self) -> int:
        """Peak memory usage of one card, in bytes."""
        return self.sizes.total

    @property
    def memory(self) -> dict[str, int]:
        """The components of `peak`, in bytes."""
        return self.sizes.parts()

    @property
    def largest_batch(self) -> int:
        """Largest number of sequences that fits on a card, or group of cards; 0 if none fits."""
        return self.searched()

    @property
    def fits(self) -> bool:
        """Whether the generation fits in a card's memory."""
        return self.peak <= self.settings.card.memory

    @property
    def band(self) -> tuple[float, float]:
        """Range in which a measurement is expected, in multiples of `seconds`."""
        return self.limits.low, self.limits.high

    @property
    def by_kind(self) -> dict[str, float]:
        """`seconds`, split by the resource that limits them."""
        return self.times.by_kind

    def title(self) -> str:
        """Return the headline."""
        settings = self.settings
        cards = "" if settings.layout.cards == 1 else f"{settings.layout.cards} x "
        how = [f"{settings.mode} mode", settings.dtype]
        how += [f"{settings.cache_dtype} {settings.cache} cache", f"batch {self.batch}"]
        if settings.attention == "fused":
            how.append("fused attention")
        if settings.layout.cards > 1:
            how.append(str(settings.layout))
        return (
            f"Estimate: {self.model} generates {settings.new_tokens} tokens after "
            f"{settings.prompt} on {cards}{settings.card.name} ({', '.join(how)})"
        )

    def rows(self) -> Sequence[Row]:
        """Return the time and memory with error bands, and their components."""
        return [
            ("first token", figures.duration(self.first_token_seconds, self.band)),
            ("each token", figures.duration(self.token_seconds, self.band)),
            ("throughput", figures.rate(self.tokens_per_second, "tokens", self.band)),
            *figures.compilation(self.compile_seconds),
            ("memory of a card", f"{self._usage()}, {'fits' if self.fits else 'does not fit'}"),
            *((f"  {name}", units.size(size)) for name, size in self.memory.items()),
            ("largest batch", f"{self.largest_batch} (estimate)"),
            *figures.times(self.by_kind),
            *figures.slowest(self.modules),
        ]

    def notes(self) -> Sequence[str]:
        """Return a note that explains the estimate."""
        return (figures.note(f"published measurements of {self.limits.rows}"),)

    def warnings(self) -> Sequence[str]:
        """Suggest changes if the generation does not fit in memory."""
        if self.fits:
            return ()
        return (over_memory(self.sizes, self.settings),)

    def _usage(self) -> str:
        return figures.memory(self.peak, self.settings.card.memory)


def over_memory(memory: GenerationMemory, settings: GenerationSettings) -> str:
    """Return a message that states how much memory is missing and which changes would help."""
    over = units.size(memory.total - settings.card.memory)
    fixes = ["a smaller batch"] if settings.batch not in (1, "largest") else []
    if memory.weights > memory.cache:
        if settings.dtype != "fp8" and settings.card.has_fp8:
            fixes.append('dtype="fp8"')
    elif settings.cache_dtype != "fp8" and settings.card.has_fp8:
        fixes.append('cache_dtype="fp8"')
    needed = settings.layout.tensor
    while needed * settings.card.memory < settings.layout.tensor * memory.total:
        needed *= 2
    fixes.append(f'parallel="tp={needed}" with {needed} cards')
    return (
        f"A card needs {units.size(memory.total)}, {over} more than a {settings.card.name} has: "
        f"use {' or '.join(fixes)}."
    )
