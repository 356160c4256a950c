"""How a step is laid out over cards: what each of them has of the model, and of the batch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpu_magic.estimate.errors import EstimateError

# Name: what ZeRO (FSDP is its third stage) divides among the cards that have parts of the batch.
_STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
_SIZES = {"tp": "tensor", "pp": "pipeline"}
_KNOWN = "ddp, zero1, zero2, zero3 (or fsdp), tp=N, pp=N, and products such as tp=2,pp=2,zero1"


@dataclass(frozen=True)
class Layout:
    """Cards as groups: `data` times `tensor` times `pipeline` of them."""

    cards: int = 1
    data: int = 1
    """How many parts the batch has; each is computed with the whole model."""
    zero: int = 0
    """Divided among these: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 weights too."""
    tensor: int = 1
    """Among how many cards each matrix product is divided."""
    pipeline: int = 1
    """Among how many cards the layers are divided."""

    def __str__(self) -> str:
        parts = [f"tp={self.tensor}"] * (self.tensor > 1) + [f"pp={self.pipeline}"] * (
            self.pipeline > 1
        )
        if self.data > 1:
            parts.append(f"zero{self.zero}" if self.zero else "ddp")
        return ",".join(parts) or "one card"


def parse(cards: int | None = None, parallel: str | None = None) -> Layout:
    """Return the layout of some cards.

    Parameters
    ----------
    cards : int, optional
        How many there are; as many as `parallel` needs if None.
    parallel : str, optional
        ``"ddp"``, ``"zero1"``, ``"zero2"``, ``"zero3"`` or ``"fsdp"``, ``"tp=N"``, ``"pp=N"``, and
        several of them with commas or asterisks between. Cards that `tp` and `pp` leave take parts
        of the batch.

    Raises
    ------
    EstimateError
        The text is none of these, or the cards cannot be divided so.
    """
    if cards is not None and (not isinstance(cards, int) or isinstance(cards, bool) or cards < 1):
        raise EstimateError(f"cards={cards!r} is no number of cards: give 1 or more.")
    if parallel is not None and not isinstance(parallel, str):
        raise EstimateError(f"parallel={parallel!r} is no text; there are {_KNOWN}.")
    sizes = {"tensor": 1, "pipeline": 1}
    stage: int | None = None
    for part in re.split(r"[,*]", (parallel or "").lower().replace(" ", "")):
        name, _, size = part.partition("=")
        if not part:
            continue
        if name in _STAGES and not size:
            if stage is not None:
                raise EstimateError(
                    f"parallel={parallel!r} says twice how the batch is divided: give one of "
                    f"{', '.join(_STAGES)}."
                )
            stage = _STAGES[name]
        elif name in _SIZES and size.isdecimal() and int(size):
            if sizes[_SIZES[name]] > 1:
                raise EstimateError(f"parallel={parallel!r} gives {name} twice: give it once.")
            sizes[_SIZES[name]] = int(size)
        else:
            raise EstimateError(f"parallel={parallel!r}: {part!r} is unknown; there are {_KNOWN}.")
    divided = sizes["tensor"] * sizes["pipeline"]
    total = divided if cards is None else cards
    if total % divided:
        raise EstimateError(
            f"{total} cards cannot be divided by tp={sizes['tensor']} times "
            f"pp={sizes['pipeline']}: give a multiple of {divided} cards."
        )
    data = total // divided
    return Layout(total, data, (stage or 0) if data > 1 else 0, **sizes)
