"""A generation traced, shared among cards and priced, for batches of any size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.generation.bands import band_of
from hpu_magic.estimates.generation.memory import Memory, memory_of
from hpu_magic.estimates.generation.passes import (
    Pass,
    Passes,
    passes_of,
    preallocated,
    with_cache_in,
)
from hpu_magic.estimates.generation.protocol import Protocol
from hpu_magic.estimates.generation.result import GenerationEstimate, over_memory
from hpu_magic.estimates.generation.settings import Settings
from hpu_magic.estimates.generation.times import Times, times_of
from hpu_magic.estimates.largest_batch import largest_batch


@dataclass(frozen=True)
class Traced:
    """The passes of one batch."""

    prompt: Pass
    tokens: dict[int, Pass]
    """Passes over one more token, by how many tokens come before it."""

    @property
    def last(self) -> Pass:
        """The pass over the last token."""
        return self.tokens[max(self.tokens)]


class Estimator:
    """Estimates of one model's generation."""

    def __init__(self, passes: Passes, settings: Settings) -> None:
        self._passes, self._settings = passes, settings

    def traced(self, batch: int) -> Traced:
        """Return the passes of a batch of one card."""
        settings = self._settings
        first, final = settings.prompt, max(settings.length - 2, settings.prompt)
        positions = {settings.read_at(at) for at in (first, (first + final) // 2, final)}
        if settings.cache == "static":
            positions.add(settings.length - 1)  # the memory of all tokens
        return Traced(
            self._converted(self._passes.prompt(batch, settings.prompt)),
            {at: self._converted(self._passes.token(batch, at)) for at in sorted(positions)},
        )

    def memory(self, traced: Traced) -> Memory:
        """Return what one card needs."""
        return memory_of(traced.prompt, traced.last, self._settings)

    def largest_batch(self, known: Mapping[int, int]) -> int:
        """Return the largest batch of one card; 0 if not even 1 fits.

        Parameters
        ----------
        known : mapping
            Bytes of batches that have been traced already.
        """
        needed = NearlyStraight(lambda batch: self.memory(self._ends(batch)).total, known)
        # Views of a single sequence are laid out otherwise than those of several.
        start = max(max(known, default=1), 2)
        return largest_batch(needed, self._settings.card.memory, start)

    def _ends(self, batch: int) -> Traced:
        """Return the passes that memory is told from: over the prompt and over the last token."""
        settings = self._settings
        last = settings.length - 1
        return Traced(
            self._converted(self._passes.prompt(batch, settings.prompt)),
            {last: self._converted(self._passes.token(batch, last))},
        )

    def times(self, traced: Traced) -> Times:
        """Return how long it takes."""
        return times_of(traced.prompt, traced.tokens, self._settings)

    def _converted(self, one: Pass) -> Pass:
        settings = self._settings
        if settings.cache == "static":
            one = preallocated(one)
        if settings.cache_dtype != settings.dtype:
            one = with_cache_in(one, settings.cache_dtype)
        return one


class NearlyStraight:
    """A quantity that grows evenly, but for steps: traced until a line foretells what is traced.

    From then on its values are those of the line through the two nearest that are known.
    """

    def __init__(self, trace: Callable[[int], int], known: Mapping[int, int]) -> None:
        self._trace, self._known = trace, dict(known)
        self._foretold = False

    def __call__(self, at: int) -> int:
        """Return the quantity, traced or foretold."""
        if at in self._known:
            return self._known[at]
        line = self._line(at)
        if line is not None and self._foretold:
            return round(line[0])
        self._known[at] = self._trace(at)
        if line is not None:
            self._foretold = abs(self._known[at] - line[0]) < line[1]
        return self._known[at]

    def _line(self, at: int) -> tuple[float, float] | None:
        """Return the value of the line, and how much it rises with one more."""
        if len(self._known) < 2:
            return None
        one, other = sorted(self._known, key=lambda each: abs(each - at))[:2]
        slope = (self._known[other] - self._known[one]) / (other - one)
        return self._known[one] + slope * (at - one), slope


def estimate_of(model: nn.Module, protocol: Protocol, settings: Settings) -> GenerationEstimate:
    """Return the estimate of a model's generation.

    Raises
    ------
    EstimateError
        One sequence does not fit, where the largest batch is asked for, or what runs depends on
        numbers.
    """
    groups = settings.layout.data
    with passes_of(model, protocol, settings.dtype) as passes:
        estimator = Estimator(passes, settings)
        most: int | None = None
        if settings.batch == "largest":
            most = estimator.largest_batch({})
            batch = max(most, 1)
        else:
            batch = settings.batch // groups
        traced = estimator.traced(batch)
        memory = estimator.memory(traced)
        if most == 0:
            raise EstimateError(over_memory(memory, settings))

    def find_largest() -> int:
        with passes_of(model, protocol, settings.dtype) as passes:
            return Estimator(passes, settings).largest_batch({batch: memory.total}) * groups

    return GenerationEstimate(
        model=type(model).__name__,
        settings=settings,
        batch=batch * groups,
        times=estimator.times(traced),
        memory=memory,
        find_largest=find_largest,
        limits=band_of(batch, settings.layout.cards, settings.card),
        largest=None if most is None else most * groups,
    )
