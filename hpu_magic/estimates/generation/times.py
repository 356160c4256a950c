"""Time of a generation: its prompt, and its tokens while the cache grows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpu_magic.estimates.cost.compilation import compile_seconds
from hpu_magic.estimates.cost.pricing import Prices, price
from hpu_magic.estimates.generation.passes import Pass
from hpu_magic.estimates.generation.settings import Settings
from hpu_magic.estimates.tracing.program import Program


@dataclass(frozen=True)
class Priced:
    """A pass and what it costs, which stands for so many passes."""

    program: Program
    prices: Prices
    times: float


@dataclass(frozen=True)
class Times:
    """Seconds of a generation."""

    prompt: Priced
    tokens: tuple[Priced, ...]
    """Passes over one more token, at some lengths of the cache."""
    compilation: float
    """Seconds in which all that runs is compiled."""

    @property
    def first_token(self) -> float:
        """Seconds of the prompt's pass."""
        return self.prompt.prices.seconds

    @property
    def token(self) -> float:
        """Seconds of a token behind the first, on average."""
        passes = sum(one.times for one in self.tokens)
        if not passes:
            return self.tokens[-1].prices.seconds
        return sum(one.times * one.prices.seconds for one in self.tokens) / passes

    @property
    def total(self) -> float:
        """Seconds of the prompt and all new tokens."""
        return sum(one.times * one.prices.seconds for one in (self.prompt, *self.tokens))

    @property
    def by_kind(self) -> dict[str, float]:
        """`total` by what it is spent on."""
        kinds: dict[str, float] = defaultdict(float)
        for one in (self.prompt, *self.tokens):
            for kind, seconds in one.prices.by_kind.items():
                kinds[kind] += one.times * seconds
        return dict(kinds)

    def by_operation(self) -> list[tuple[str, float, str]]:
        """Return of each operation its module, its seconds in all, and what bounds it."""
        return [
            (operation.module, one.times * cost.seconds, cost.limit)
            for one in (self.prompt, *self.tokens)
            for operation, cost in zip(one.program.operations, one.prices.operations, strict=True)
        ]


def times_of(prompt: Pass, tokens: Mapping[int, Pass], settings: Settings) -> Times:
    """Return the time of a generation.

    Parameters
    ----------
    prompt : Pass
        Over the prompt, which gives the first new token.
    tokens : mapping
        Passes over one more token, by how many tokens come before it.
    settings : Settings
        How it runs.
    """

    def priced(one: Pass, times: float) -> Priced:
        prices = price(
            one.program,
            settings.card,
            mode=settings.mode,
            precision=settings.precision,
            layout=settings.layout,
        )
        return Priced(one.program, prices, times)

    read = [settings.read_at(one) for one in range(settings.prompt, settings.length - 1)]
    counts = weights_of(sorted(tokens), read)
    token = next(iter(tokens.values())).program
    return Times(
        priced(prompt, 1.0),
        tuple(priced(tokens[at], times) for at, times in counts.items()),
        compile_seconds(prompt.program, settings.mode)
        + len(set(read)) * compile_seconds(token, settings.mode),
    )


def weights_of(known: list[int], wanted: Iterable[int]) -> dict[int, float]:
    """Return how often each known position counts in a sum over wanted ones.

    Positions between two known ones are taken to lie on the straight line between them.
    """
    weights = dict.fromkeys(known, 0.0)
    for position in wanted:
        below = max((one for one in known if one <= position), default=known[0])
        above = min((one for one in known if one >= position), default=known[-1])
        share = (position - below) / (above - below) if above > below else 0.0
        weights[below] += 1 - share
        weights[above] += share
    return weights
