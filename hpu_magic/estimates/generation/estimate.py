"""`hpu_magic.estimate_generation`: the time and memory of text generation on cards."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device

if TYPE_CHECKING:
    from torch import nn

    from hpu_magic.estimates.generation.result import GenerationEstimate


def estimate_generation(
    model: nn.Module,
    batch: int | Literal["largest"],
    prompt: int,
    new_tokens: int,
    *,
    cache_dtype: str | None = None,
    card: str = "gaudi2",
    cards: int = 1,
    parallel: str | None = None,
    mode: str = "graphs",
    dtype: str = "bf16",
    cache: str = "static",
    bucket: int | None = 128,
    capture_prompt: bool = False,
    attention: str = "torch",
    expert_parallel: int = 1,
    imbalance: float = 1.0,
) -> GenerationEstimate:
    """Estimate text generation; see `hpu_magic.estimate_generation`."""
    # The model can be traced even if PyTorch was initialized without a card.
    with suppress(HPUError):
        device.torch_with_hpu()
    from hpu_magic.estimates.calls import uncompiled
    from hpu_magic.estimates.generation.estimator import estimate_of
    from hpu_magic.estimates.generation.protocol import protocol_of
    from hpu_magic.estimates.generation.settings import checked
    from hpu_magic.estimates.stages import check_stages

    model = uncompiled(model)
    protocol = protocol_of(model)
    settings = checked(
        protocol,
        {
            "batch": batch,
            "prompt": prompt,
            "new_tokens": new_tokens,
            "cache_dtype": cache_dtype,
            "card": card,
            "cards": cards,
            "parallel": parallel,
            "mode": mode,
            "dtype": dtype,
            "cache": cache,
            "bucket": bucket,
            "capture_prompt": capture_prompt,
            "attention": attention,
            "expert_parallel": expert_parallel,
            "imbalance": imbalance,
        },
    )
    check_stages(model, settings.layout)
    return estimate_of(model, protocol, settings)
