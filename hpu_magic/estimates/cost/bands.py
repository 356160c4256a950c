"""The error band of an estimate, which depends on the kind of work."""

from __future__ import annotations

from dataclasses import dataclass

from hpu_magic.estimates.cost.constants import BANDS
from hpu_magic.estimates.cost.hardware import Generation
from hpu_magic.estimates.layout import Layout

_MOST_CARDS_IN_TRAINING = 64
"""The largest number of cards in the measurements of training."""

_MEASURED_SIZE = 32 * 2**20
"""The smallest size in bytes of a measured all-reduce."""


@dataclass(frozen=True)
class Band:
    """The range in which a measurement is expected, in multiples of the estimated time."""

    low: float
    high: float
    rows: str
    """The kind of published measurements on which the band is based."""


def band_of_training(layout: Layout, mode: str, dtype: str) -> Band:
    """Return the error band of a training step."""
    if dtype == "fp32":
        return _band("unmeasured", "training in bf16 and fp8, with a wider band for float32")
    if layout.cards > _MOST_CARDS_IN_TRAINING:
        return _band(
            "unmeasured",
            f"training, with a wider band for more than {_MOST_CARDS_IN_TRAINING} cards",
        )
    if mode == "compile" and layout.zero == 3:
        return _band(
            "unmeasured", "training, with a wider band for compiled code with sharded weights"
        )
    return _band("training", "training")


def band_of_inference(
    sequences: int, new_tokens: int, layout: Layout, card: Generation, dtype: str
) -> Band:
    """Return the error band of a forward pass, or of the generation of several tokens.

    ``sequences`` is the number of sequences per card. Generating a single token is a forward pass.
    """
    if dtype == "fp32":
        return _band("unmeasured", "inference in bf16 and fp8, widened for float32")
    if layout.cards > card.cards_per_machine:
        return _band("unmeasured", "inference, widened for several machines")
    if new_tokens == 1:
        return _band("passes", "forward passes")
    if sequences > 1:
        return _band("batches", "batches")
    if layout.cards == 1:
        return _band("single sequences", "single sequences on one card")
    return _band("unmeasured", "single sequences, widened for several cards")


def band_of_collective(operation: str, size: int, cards: int, card: Generation) -> Band:
    """Return the error band of a collective operation on `size` bytes."""
    if (operation, cards, card.name) == ("all_reduce", 8, "gaudi2") and size >= _MEASURED_SIZE:
        return _band("passes", "all-reduce on eight Gaudi2 cards")
    return _band("unmeasured", "all-reduce of large tensors on eight Gaudi2 cards, widened")


def _band(kind: str, rows: str) -> Band:
    return Band(1 / BANDS[kind], BANDS[kind], rows)
