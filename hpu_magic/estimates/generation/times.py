"""Calculate the time to process a prompt and to generate each token as the cache grows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpu_magic.estimates.cost.pricing import Prices, compile_seconds, price
from hpu_magic.estimates.generation.passes import Pass
from hpu_magic.estimates.generation.settings import GenerationSettings
from hpu_magic.estimates.tracing.program import Program


@dataclass(frozen=True)
class Priced:
    """A pass with its estimated times, and the number of passes that it represents."""

    program: Program
    prices: Prices
    times: float


@dataclass(frozen=True)
class Times:
    """The time in seconds that each part of text generation takes."""

    prompt: Priced
    tokens: tuple[Priced, ...]
    """Passes over one new token, for only some of the cache lengths."""
    compilation: float
    """Compilation time for all shapes, in seconds."""

    @property
    def first_token(self) -> float:
        """Time of the pass over the prompt, in seconds."""
        return self.prompt.prices.seconds

    @property
    def token(self) -> float:
        """Average time per token after the first one, in seconds."""
        passes = sum(each.times for each in self.tokens)
        if not passes:
            return self.tokens[-1].prices.seconds
        return sum(each.times * each.prices.seconds for each in self.tokens) / passes

    @property
    def total(self) -> float:
        """Time for the prompt and all new tokens, in seconds."""
        return sum(each.times * each.prices.seconds for each in (self.prompt, *self.tokens))

    @property
    def by_kind(self) -> dict[str, float]:
        """`total`, split by the resource that limits the time."""
        kinds: dict[str, float] = defaultdict(float)
        for each in (self.prompt, *self.tokens):
            for kind, seconds in each.prices.by_kind.items():
                kinds[kind] += each.times * seconds
        return dict(kinds)

    def by_operation(self) -> list[tuple[str, float, str]]:
        """Return the module path, total time in seconds and limiting resource of each operation."""
        return [
            (operation.module, each.times * cost.seconds, cost.limit)
            for each in (self.prompt, *self.tokens)
            for operation, cost in zip(each.program.operations, each.prices.operations, strict=True)
        ]


def times_of(prompt: Pass, tokens: Mapping[int, Pass], settings: GenerationSettings) -> Times:
    """Return the times of text generation, calculated from some of its passes.

    ``tokens`` maps some cache lengths to passes over one new token. The cost for the other lengths
    is interpolated.
    """

    def priced(traced: Pass, times: float) -> Priced:
        prices = price(
            traced.program,
            settings.card,
            mode=settings.mode,
            dtype=settings.dtype,
            layout=settings.layout,
            fused_attention=settings.attention == "fused",
        )
        return Priced(traced.program, prices, times)

    read = [settings.read_at(at) for at in range(settings.prompt, settings.length - 1)]
    counts = weights_of(sorted(tokens), read)
    token = next(iter(tokens.values())).program
    return Times(
        priced(prompt, 1.0),
        tuple(priced(tokens[at], times) for at, times in counts.items()),
        compile_seconds(prompt.program, settings.mode)
        + len(set(read)) * compile_seconds(token, settings.mode),
    )


def weights_of(known: list[int], wanted: Iterable[int]) -> dict[int, float]:
    """Return the weight of each known position in the sum over all requested positions.

    Values between two known positions are linearly interpolated.
    """
    weights = dict.fromkeys(known, 0.0)
    for position in wanted:
        below = max((each for each in known if each <= position), default=known[0])
        above = min((each for each in known if each >= position), default=known[-1])
        share = (position - below) / (above - below) if above > below else 0.0
        weights[below] += 1 - share
        weights[above] += share
    return weights
