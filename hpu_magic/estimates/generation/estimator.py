"""Trace text generation for any batch size, distribute it across cards, and calculate its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from torch import nn

from hpu_magic.estimates.cost.bands import band_of_inference
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.experts import on_busiest_card
from hpu_magic.estimates.generation.memory import GenerationMemory, memory_of
from hpu_magic.estimates.generation.passes import (
    Pass,
    Passes,
    passes_of,
    preallocated,
    with_cache_in,
)
from hpu_magic.estimates.generation.protocol import Protocol
from hpu_magic.estimates.generation.result import GenerationEstimate, over_memory
from hpu_magic.estimates.generation.settings import GenerationSettings
from hpu_magic.estimates.generation.times import Times, times_of
from hpu_magic.estimates.largest_batch import largest_batch


@dataclass(frozen=True)
class Traced:
    """The traced passes for one batch size."""

    prompt: Pass
    tokens: dict[int, Pass]
    """Passes for a single new token, keyed by the number of tokens that precede it."""

    @property
    def last(self) -> Pass:
        """The pass over the last token."""
        return self.tokens[max(self.tokens)]


class Estimator:
    """Estimates text generation with a model."""

    def __init__(self, passes: Passes, settings: GenerationSettings) -> None:
        self._passes, self._settings = passes, settings

    def traced(self, batch: int) -> Traced:
        """Trace the passes for a batch size per card."""
        settings = self._settings
        first, final = settings.prompt, max(settings.length - 2, settings.prompt)
        positions = {settings.read_at(at) for at in (first, (first + final) // 2, final)}
        if settings.cache == "static":
            positions.add(settings.length - 1)  # the pass that determines memory usage
        return Traced(
            self._converted(self._passes.prompt(batch, settings.prompt)),
            {at: self._converted(self._passes.token(batch, at)) for at in sorted(positions)},
        )

    def memory(self, traced: Traced) -> GenerationMemory:
        """Return the memory that the passes need on one card."""
        return memory_of(traced.prompt, traced.last, self._settings)

    def largest_batch(self, known: Mapping[int, int]) -> int:
        """Return the largest batch that fits on one card; 0 if none fits.

        ``known`` maps each batch size that has already been traced to its memory usage in bytes.
        """
        needed = NearlyLinear(lambda batch: self.memory(self._ends(batch)).total, known)
        # Views of a single sequence have different strides than views of several sequences.
        start = max(max(known, default=1), 2)
        return largest_batch(needed, self._settings.card.memory, start)

    def _ends(self, batch: int) -> Traced:
        """Return the prompt's pass and the last token's pass, which determine memory usage."""
        settings = self._settings
        last = settings.length - 1
        return Traced(
            self._converted(self._passes.prompt(batch, settings.prompt)),
            {last: self._converted(self._passes.token(batch, last))},
        )

    def times(self, traced: Traced) -> Times:
        """Return the times of the prompt and of all new tokens."""
        return times_of(traced.prompt, traced.tokens, self._settings)

    def _converted(self, traced: Pass) -> Pass:
        settings = self._settings
        if settings.cache == "static":
            traced = preallocated(traced)
        if settings.torch_cache_dtype != settings.torch_dtype:
            traced = with_cache_in(traced, settings.torch_cache_dtype)
        return replace(traced, program=on_busiest_card(traced.program, settings.layout))


class NearlyLinear:
    """A nearly linear function; its values are traced until interpolation predicts them well.

    Once the predictions are accurate, values are interpolated from the two nearest traced values.
    """

    def __init__(self, trace: Callable[[int], int], known: Mapping[int, int]) -> None:
        self._trace, self._known = trace, dict(known)
        self._predicted = False

    def __call__(self, at: int) -> int:
        """Return the traced or interpolated value."""
        if at in self._known:
            return self._known[at]
        line = self._line(at)
        if line is not None and self._predicted:
            return round(line[0])
        self._known[at] = self._trace(at)
        if line is not None:
            self._predicted = abs(self._known[at] - line[0]) < line[1]
        return self._known[at]

    def _line(self, at: int) -> tuple[float, float] | None:
        """Return the value and slope of the line through the two nearest known values."""
        if len(self._known) < 2:
            return None
        first, second = sorted(self._known, key=lambda known: abs(known - at))[:2]
        slope = (self._known[second] - self._known[first]) / (second - first)
        return self._known[first] + slope * (at - first), slope


def estimate_of(
    model: nn.Module, protocol: Protocol, settings: GenerationSettings
) -> GenerationEstimate:
    """Estimate text generation with a model.

    Raises `EstimateError` if the largest batch is requested but not even one sequence fits, or if
    operations depend on tensor values.
    """
    with passes_of(model, protocol, settings.torch_dtype) as passes:
        estimator = Estimator(passes, settings)
        most: int | None = None
        if settings.batch == "largest":
            most = estimator.largest_batch({})
            batch = max(most, 1)
        else:
            batch = settings.batch
        traced = estimator.traced(batch)
        memory = estimator.memory(traced)
        if most == 0:
            raise EstimateError(over_memory(memory, settings))

    def find_largest() -> int:
        with passes_of(model, protocol, settings.torch_dtype) as passes:
            return Estimator(passes, settings).largest_batch({batch: memory.total})

    return GenerationEstimate(
        model=type(model).__name__,
        settings=settings,
        batch=batch,
        times=estimator.times(traced),
        sizes=memory,
        find_largest=find_largest,
        limits=band_of_inference(
            batch, settings.new_tokens, settings.layout, settings.card, settings.dtype
        ),
        largest=most,
    )
