"""Check the arguments of a generation estimate before the model is traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from hpu_magic.estimates.cost.hardware import Generation, generation_named
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.generation.protocol import Protocol
from hpu_magic.estimates.layout import Layout, check_without_training, parse
from hpu_magic.estimates.options import MODES, one_of, positive
from hpu_magic.estimates.step_arguments import ATTENTIONS

CACHES = ("static", "dynamic")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8": torch.bfloat16}
"""Maps each ``dtype`` to the computation dtype; with fp8, only linear layers use FP8."""
CACHE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}


@dataclass(frozen=True)
class GenerationSettings:
    """The validated arguments of a generation estimate."""

    batch: int | Literal["largest"]
    """Number of sequences per card, or per group of cards that share the model."""
    prompt: int
    """Number of tokens in each prompt."""
    new_tokens: int
    """Number of tokens generated per prompt."""
    cache_dtype: str
    card: Generation
    layout: Layout
    mode: str
    dtype: str
    cache: str
    bucket: int | None
    capture_prompt: bool
    attention: str
    """How PyTorch's attention runs: ``torch``, or ``fused`` for the vendor's kernel."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """Dtype of the computations."""
        return DTYPES[self.dtype]

    @property
    def torch_cache_dtype(self) -> torch.dtype:
        """Dtype of the keys and values in the cache."""
        return CACHE_DTYPES[self.cache_dtype]

    @property
    def length(self) -> int:
        """Number of tokens in a complete sequence."""
        return self.prompt + self.new_tokens

    def read_at(self, position: int) -> int:
        """Return how many tokens a step reads from a cache that holds `position` tokens.

        A static cache is read completely or, with buckets, up to the end of the last occupied
        bucket.
        """
        if self.cache == "dynamic":
            return position
        if self.bucket is None:
            return self.length - 1
        return min(-(-(position + 1) // self.bucket) * self.bucket, self.length) - 1


def checked(protocol: Protocol, values: dict[str, Any]) -> GenerationSettings:
    """Check the arguments of a generation estimate and return them as settings."""
    for name in ("prompt", "new_tokens"):
        positive(name, values[name])
    if values["batch"] != "largest":
        positive("batch", values["batch"])
    length = values["prompt"] + values["new_tokens"]
    if protocol.positions is not None and length > protocol.positions:
        raise EstimateError(
            f"prompt={values['prompt']} plus new_tokens={values['new_tokens']} is {length} tokens, "
            f"but the model has only {protocol.positions} positions: use fewer tokens."
        )
    mode = one_of("mode", values["mode"], MODES)
    dtype = one_of("dtype", values["dtype"], tuple(DTYPES))
    cache = one_of("cache", values["cache"], CACHES)
    if values["bucket"] is not None:
        positive("bucket", values["bucket"])
    cache_dtype = one_of("cache_dtype", values["cache_dtype"] or dtype, tuple(CACHE_DTYPES))
    card = generation_named(values["card"])
    for name, value in (("dtype", dtype), ("cache_dtype", cache_dtype)):
        if value == "fp8" and not card.has_fp8:
            raise EstimateError(
                f"{name}='fp8' is not supported by {card.name}: use 'bf16', or "
                "card='gaudi2' or 'gaudi3'."
            )
    return GenerationSettings(
        values["batch"],
        values["prompt"],
        values["new_tokens"],
        cache_dtype,
        card,
        _layout(values),
        mode,
        dtype,
        cache,
        values["bucket"],
        values["capture_prompt"],
        one_of("attention", values["attention"], ATTENTIONS),
    )


def _layout(values: dict[str, Any]) -> Layout:
    cards, parallel, experts = values["cards"], values["parallel"], values["expert_parallel"]
    if parallel is None and isinstance(cards, int) and isinstance(experts, int) and experts > 0:
        parallel = f"tp={cards // experts}" if cards > experts else None
    layout = parse(cards, parallel, experts, values["imbalance"])
    check_without_training(layout)
    return layout
