"""How a step is laid out over cards: what each of them has of the model, and of the batch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hpu_magic.estimates.errors import EstimateError

# Name: what ZeRO (FSDP is its third stage) divides among the cards that have parts of the batch.
_STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
_SIZES = {"tp": "tensor", "pp": "pipeline"}
_KNOWN = "ddp, zero1, zero2, zero3 (or fsdp), tp=N, pp=N, and products such as tp=2,pp=2,zero1"
MOST_CARDS = 2**16
"""More than any cluster has."""


@dataclass(frozen=True)
class Layout:
    """Cards as groups: `data` times `tensor` times `pipeline` of them."""

    cards: int = 1
    data: int = 1
    """How many parts the batch has; each is computed with the whole model."""
    zero: int = 0
    """Divided among these: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 weights too."""
    in_float32: bool = False
    """Whether the optimizer has weights of its own and its state in float32, whatever the model's
    type, as DeepSpeed's ZeRO does; FSDP's has the model's own."""
    tensor: int = 1
    """Among how many cards each matrix product is divided."""
    pipeline: int = 1
    """Among how many cards the layers are divided."""

    def __str__(self) -> str:
        parts = [f"tp={self.tensor}"] * (self.tensor > 1) + [f"pp={self.pipeline}"] * (
            self.pipeline > 1
        )
        if self.data > 1:
            sharded = f"zero{self.zero}" if self.in_float32 else "fsdp"
            parts.append(sharded if self.zero else "ddp")
        return ",".join(parts) or "one card"


def parse(cards: int | None = None, parallel: str | None = None) -> Layout:
    """Return the layout of some cards.

    Parameters
    ----------
    cards : int, optional
        How many there are; as many as `parallel` needs if None.
    parallel : str, optional
        ``"ddp"``, ``"zero1"``, ``"zero2"``, ``"zero3"`` or ``"fsdp"``, ``"tp=N"``, ``"pp=N"``, and
        several of them with commas, asterisks or plus signs between. Cards that `tp` and `pp` leave
        take parts of the batch.

    Raises
    ------
    EstimateError
        The text is none of these, or the cards cannot be divided so.
    """
    if cards is not None and not _counts(cards):
        raise EstimateError(f"cards={cards!r} is no number of cards: give 1 to {MOST_CARDS}.")
    if parallel is not None and not isinstance(parallel, str):
        raise EstimateError(f"parallel={parallel!r} is no text; there are {_KNOWN}.")
    sizes: dict[str, int] = {}
    named: str | None = None
    for part in filter(None, re.split(r"[,*+]", (parallel or "").lower().replace(" ", ""))):
        name, _, size = part.partition("=")
        if name in _STAGES and not size:
            if named is not None:
                raise EstimateError(
                    f"parallel={parallel!r} says twice how the batch is divided, by {named} and by "
                    f"{name}: give one of them."
                )
            named = name
        elif name in _SIZES and size.isdecimal() and _counts(int(size)):
            if name in sizes:
                raise EstimateError(f"parallel={parallel!r} gives {name} twice: give it once.")
            sizes[name] = int(size)
        elif name in _SIZES:
            raise EstimateError(
                f"parallel={parallel!r}: {part!r} is no number of cards; give {name}=N with an N "
                f"of 1 to {MOST_CARDS}."
            )
        else:
            raise EstimateError(f"parallel={parallel!r}: {part!r} is unknown; there are {_KNOWN}.")
    return _layout(cards, sizes, named)


def _layout(cards: int | None, sizes: Mapping[str, int], named: str | None) -> Layout:
    divided = prod(sizes.values())
    total = divided if cards is None else cards
    product = " times ".join(f"{name}={size}" for name, size in sizes.items())
    if total % divided:
        raise EstimateError(
            f"cards={total} cannot be divided by {product}: give cards={divided} or a multiple of "
            "it."
        )
    data, stage = total // divided, _STAGES[named or "ddp"]
    if stage and divided > 1 and data == 1:
        raise EstimateError(
            f"{named} divides among cards that have different data, and {product} leaves one of "
            f"cards={total}: give cards={2 * divided} or more, or leave {named} out."
        )
    of_kind = {_SIZES[name]: size for name, size in sizes.items()}
    zero = stage if data > 1 else 0
    return Layout(total, data, zero, in_float32=zero > 0 and named != "fsdp", **of_kind)


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_CARDS


def refuse_zero(layout: Layout) -> None:
    """Raise an error if cards share what only training has.

    Raises
    ------
    EstimateError
        They do, by a stage of ZeRO.
    """
    if layout.zero:
        raise EstimateError(f"{layout} divides what only training has: give tp=N, pp=N or ddp.")
