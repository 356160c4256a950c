"""The layout of a step: how it is distributed across cards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, prod

from hpu_magic.estimates.errors import EstimateError

# Maps names to ZeRO stages; FSDP corresponds to stage 3.
_STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
_SIZES = ("tp", "pp")
_KNOWN = "ddp, zero1, zero2, zero3 (or fsdp), tp=N, pp=N, and combinations such as tp=2,pp=2,zero1"
FIRST_BUCKET = 2**20
"""Default size in bytes of the first bucket of gradients of `DistributedDataParallel`."""
MOST_CARDS = 2**16
"""An upper bound on the number of cards; no cluster is this large."""


@dataclass(frozen=True)
class Buckets:
    """Buckets in which `DistributedDataParallel` exchanges gradients; its defaults."""

    first: int = FIRST_BUCKET
    """Size in bytes of the first bucket; a gradient that exceeds it is its last one."""
    others: int = 25 * 2**20
    views: bool = False
    """Whether gradients are views of buckets (``gradient_as_bucket_view``), which DDP copies to
    buckets, but not back."""


@dataclass(frozen=True)
class Layout:
    """A layout of cards in groups; `cards` equals `data` times `tensor` times `pipeline`."""

    cards: int = 1
    data: int = 1
    """Number of cards, or groups of cards, that process different parts of the batch."""
    zero: int = 0
    """ZeRO stage: 0 shards nothing, 1 the optimizer state, 2 also gradients, and 3 also weights."""
    in_float32: bool = False
    """Whether the optimizer keeps its state and its own copy of the weights in float32, as in
    DeepSpeed's ZeRO. With FSDP, the state has the dtype of the model's weights."""
    tensor: int = 1
    """Number of cards that compute each matmul together."""
    pipeline: int = 1
    """Number of cards across which the layers are distributed."""
    experts: int = 1
    """Number of cards with different data that share the experts of a mixture-of-experts model."""
    buckets: Buckets = Buckets()
    """The buckets of gradients; used if ZeRO shards nothing."""
    imbalance: float = 1.0
    """Tokens of the card whose experts process the most tokens, relative to the mean."""

    def replicas(self, *, of_experts: bool) -> int:
        """Return the number of cards that have the same weights and process different data."""
        return self.data // self.experts if of_experts else self.data

    def __str__(self) -> str:
        parts = [f"tp={self.tensor}"] * (self.tensor > 1) + [f"pp={self.pipeline}"] * (
            self.pipeline > 1
        )
        if self.data > 1:
            sharded = f"zero{self.zero}" if self.in_float32 else "fsdp"
            parts.append(sharded if self.zero else "ddp")
        if self.experts > 1:
            parts.append(f"expert_parallel={self.experts}")
        if self.imbalance > 1:
            parts.append(f"imbalance={self.imbalance:g}")
        return ",".join(parts) or "one card"


def parse(
    cards: int | None = None,
    parallel: str | None = None,
    expert_parallel: int = 1,
    imbalance: float = 1.0,
) -> Layout:
    """Return the layout; ``cards`` defaults to the number of cards that ``parallel`` needs.

    ``parallel`` is ``"ddp"``, ``"zero1"``, ``"zero2"``, ``"zero3"`` or ``"fsdp"``, ``"tp=N"``,
    ``"pp=N"``, or a combination separated by commas, asterisks or plus signs. ``tp`` and ``pp``
    form groups of cards, and the batch is divided among the groups. The experts are distributed
    across ``expert_parallel`` of these groups.
    """
    if cards is not None and not _counts(cards):
        raise EstimateError(f"cards={cards!r} is not a number of cards: use 1 to {MOST_CARDS}.")
    if parallel is not None and not isinstance(parallel, str):
        raise EstimateError(f"parallel={parallel!r} is not a string: use {_KNOWN}.")
    sizes: dict[str, int] = {}
    named: str | None = None
    for part in filter(None, re.split(r"[,*+]", (parallel or "").lower().replace(" ", ""))):
        name, _, size = part.partition("=")
        if name in _STAGES and not size:
            if named is not None:
                raise EstimateError(
                    f"parallel={parallel!r} divides the batch by both {named} and {name}: use only "
                    "one of them."
                )
            named = name
        elif name in _SIZES and size.isdecimal() and _counts(int(size)):
            if name in sizes:
                raise EstimateError(f"parallel={parallel!r} contains {name} twice: use it once.")
            sizes[name] = int(size)
        elif name in _SIZES:
            raise EstimateError(
                f"parallel={parallel!r}: {part!r} is not valid; use {name}=N with N from 1 to "
                f"{MOST_CARDS}."
            )
        else:
            raise EstimateError(f"parallel={parallel!r}: {part!r} is unknown; use {_KNOWN}.")
    return _with_experts(_layout(cards, sizes, named), expert_parallel, imbalance)


def _with_experts(layout: Layout, cards: int, imbalance: float) -> Layout:
    if not _counts(cards):
        raise EstimateError(
            f"expert_parallel={cards!r} is not a number of cards: use 1 to {MOST_CARDS}."
        )
    if not _is_number(imbalance) or not 1 <= imbalance < inf:
        raise EstimateError(
            f"imbalance={imbalance!r} is not a ratio of tokens: use 1.0 if all cards process the "
            "same number of tokens, or the tokens of the busiest card divided by the mean."
        )
    if imbalance > 1 and cards == 1:
        raise EstimateError(
            f"imbalance={imbalance:g} compares cards that share the experts, but "
            "expert_parallel=1: pass the number of these cards as expert_parallel."
        )
    if imbalance > cards:
        raise EstimateError(
            f"imbalance={imbalance:g} is impossible with expert_parallel={cards}, because a card "
            f"with all tokens has {cards} times the mean: use at most {cards}."
        )
    if layout.data % cards:
        divided = layout.tensor * layout.pipeline
        raise EstimateError(
            f"expert_parallel={cards} requires that the number of cards with different data, which "
            f"is {layout.data} (cards={layout.cards}, {layout}), is a multiple of {cards}: use "
            f"cards={cards * divided} or another expert_parallel."
        )
    return replace(layout, experts=cards, imbalance=float(imbalance))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _layout(cards: int | None, sizes: Mapping[str, int], named: str | None) -> Layout:
    divided = prod(sizes.values())
    total = divided if cards is None else cards
    product = " times ".join(f"{name}={size}" for name, size in sizes.items())
    if total % divided:
        raise EstimateError(
            f"cards={total} is not divisible by {product}: use cards={divided} or a multiple of it."
        )
    data, stage = total // divided, _STAGES[named or "ddp"]
    if stage and divided > 1 and data == 1:
        raise EstimateError(
            f"{named} needs several groups of cards with different data, but {product} puts all "
            f"{total} cards into one group: use cards={2 * divided} or more, or omit {named}."
        )
    zero = stage if data > 1 else 0
    return Layout(
        total,
        data,
        zero,
        in_float32=zero > 0 and named != "fsdp",
        tensor=sizes.get("tp", 1),
        pipeline=sizes.get("pp", 1),
    )


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_CARDS


def check_without_training(layout: Layout) -> None:
    """Raise `EstimateError` if the layout of a step without training uses ZeRO."""
    if layout.zero:
        raise EstimateError(f"{layout} is only supported for training: use tp=N, pp=N or ddp.")
