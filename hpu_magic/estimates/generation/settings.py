"""What a generation is estimated for: checked before anything is traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from hpu_magic.estimates.cost.hardware import Generation, generation_named
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.generation.protocol import Protocol
from hpu_magic.estimates.layout import Layout, parse, refuse_zero
from hpu_magic.estimates.options import MODES, one_of, positive

CACHES = ("static", "dynamic")
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8": torch.bfloat16}
"""Type that a model computes in; fp8 takes linear layers to 8 bits."""
CACHE_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}


@dataclass(frozen=True)
class Settings:
    """The checked arguments."""

    batch: int | Literal["largest"]
    """Sequences over all cards."""
    prompt: int
    """Tokens of each prompt."""
    new_tokens: int
    """Tokens made behind each prompt."""
    kv_dtype: str
    card: Generation
    layout: Layout
    mode: str
    precision: str
    cache: str
    bucket: int | None
    capture_prompt: bool

    @property
    def dtype(self) -> torch.dtype:
        """Type that the model computes in."""
        return PRECISIONS[self.precision]

    @property
    def cache_dtype(self) -> torch.dtype:
        """Type of keys and values in the cache."""
        return CACHE_TYPES[self.kv_dtype]

    @property
    def length(self) -> int:
        """Tokens of a sequence at its end."""
        return self.prompt + self.new_tokens

    def read_at(self, position: int) -> int:
        """Return how many tokens a step reads from the cache if `position` of them are made.

        It is the whole cache where that is there from the first on, or as many buckets of it as
        the tokens take.
        """
        if self.cache == "dynamic":
            return position
        if self.bucket is None:
            return self.length - 1
        return min(-(-(position + 1) // self.bucket) * self.bucket, self.length) - 1


def checked(protocol: Protocol, given: dict[str, Any]) -> Settings:
    """Return the arguments of an estimate of generation, checked.

    Raises
    ------
    EstimateError
        One of them is none that there is, or does not go with the others; the text names it.
    """
    for name in ("prompt", "new_tokens"):
        positive(name, given[name])
    if given["batch"] != "largest":
        positive("batch", given["batch"])
    length = given["prompt"] + given["new_tokens"]
    if protocol.positions is not None and length > protocol.positions:
        raise EstimateError(
            f"prompt={given['prompt']} and new_tokens={given['new_tokens']} are {length} tokens, "
            f"and the model has {protocol.positions} positions: ask for fewer."
        )
    mode = one_of("mode", given["mode"], MODES)
    precision = one_of("dtype", given["dtype"], tuple(PRECISIONS))
    cache = one_of("cache", given["cache"], CACHES)
    if given["bucket"] is not None:
        positive("bucket", given["bucket"])
    kv_dtype = one_of("cache_dtype", given["cache_dtype"] or precision, tuple(CACHE_TYPES))
    card = generation_named(given["card"])
    for name, value in (("dtype", precision), ("cache_dtype", kv_dtype)):
        if value == "fp8" and not card.has_fp8:
            raise EstimateError(
                f"{name}='fp8': {card.name} has no 8-bit floating point numbers; give 'bf16', or "
                "card='gaudi2' or 'gaudi3'."
            )
    return Settings(
        given["batch"],
        given["prompt"],
        given["new_tokens"],
        kv_dtype,
        card,
        _layout(given["cards"], given["parallel"], given["batch"]),
        mode,
        precision,
        cache,
        given["bucket"],
        given["capture_prompt"],
    )


def _layout(cards: int, parallel: str | None, batch: int | str) -> Layout:
    if parallel is None and isinstance(cards, int) and cards > 1:
        parallel = f"tp={cards}"
    layout = parse(cards, parallel)
    refuse_zero(layout)
    if isinstance(batch, int) and batch % layout.data:
        raise EstimateError(
            f"batch={batch} cannot be divided among {layout.data} groups of cards: give a "
            f"multiple of {layout.data}."
        )
    return layout
