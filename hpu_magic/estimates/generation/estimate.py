"""`hpu_magic.estimate_generation`: whether generation fits a card, and how fast it is there."""

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
) -> GenerationEstimate:
    """Return the estimate of text generation; see `hpu_magic.estimate_generation`.

    Raises
    ------
    EstimateError
        The model does not generate with a cache, an argument is wrong, one sequence does not fit
        with ``batch="largest"``, or the operations depend on values.
    """
    # PyTorch may have settled without a card; it is traced all the same.
    with suppress(HPUError):
        device.torch_with_hpu()
    from hpu_magic.estimates.calls import uncompiled
    from hpu_magic.estimates.generation.estimator import estimate_of
    from hpu_magic.estimates.generation.protocol import protocol_of
    from hpu_magic.estimates.generation.settings import checked
    from hpu_magic.estimates.stages import refuse_empty_stages

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
        },
    )
    refuse_empty_stages(model, settings.layout)
    return estimate_of(model, protocol, settings)
