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
    kv_dtype: str | None = None,
    generation: str = "gaudi2",
    cards: int = 1,
    parallel: str | None = None,
    mode: str = "graphs",
    precision: str = "bf16",
    cache: str = "static",
    bucket: int | None = 128,
    capture_prompt: bool = False,
) -> GenerationEstimate:
    """Estimate how a language model generates on Gaudi cards, without one and without computing.

    A pass over the prompts and passes over one more token are traced with tensors that have no
    memory; their operations are priced by a table of constants, and their lifetimes, with the cache
    that the model itself makes, give the memory. The model is left as it was.

    Parameters
    ----------
    model : torch.nn.Module
        A causal language model of transformers' protocol (``input_ids``, ``past_key_values``,
        ``use_cache``), on ``meta``, ``cpu`` or ``hpu``.
    batch : int or "largest"
        Sequences generated at once, over all cards; the largest number that fits.
    prompt, new_tokens : int
        Tokens of each prompt, and tokens made behind it.
    kv_dtype : {"fp32", "bf16", "fp8"}, optional
        Type of keys and values in the cache; that of `precision` if left out.
    generation : {"gaudi", "gaudi2", "gaudi3"}
        The card.
    cards : int
        How many work together.
    parallel : str, optional
        How they share the work: ``"tp=N"`` (if several and nothing is said), ``"pp=N"``, ``"ddp"``,
        and products such as ``"tp=4,pp=2"``.
    mode : {"graphs", "lazy", "eager", "compile"}
        How operations reach the card.
    precision : {"bf16", "fp32", "fp8"}
        What it computes in; with fp8, linear layers and their weights are in 8 bits.
    cache : {"static", "dynamic"}
        Whether keys and values have their memory for all tokens from the first on, or are copied
        into a larger one at each step.
    bucket : int, optional
        Of a static cache, a step reads as many tokens as there are, rounded up to a multiple of
        this, as with optimum-habana's ``bucket_internal``; all of it if None.
    capture_prompt : bool
        Whether the prompt's pass is captured as an HPU graph too, which keeps memory.

    Returns
    -------
    GenerationEstimate
        ``first_token_seconds``, ``token_seconds``, ``tokens_per_second`` (new tokens over all
        cards, the prompt's time included), ``peak_memory`` in bytes of one card, ``largest_batch``,
        ``band`` (the low and the high factor between which a measurement is expected), and what
        they are made of.

    Raises
    ------
    EstimateError
        The model is none that generates with a cache, an argument is none that there is, one
        sequence does not fit with ``batch="largest"``, or what runs depends on numbers.
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
            "kv_dtype": kv_dtype,
            "generation": generation,
            "cards": cards,
            "parallel": parallel,
            "mode": mode,
            "precision": precision,
            "cache": cache,
            "bucket": bucket,
            "capture_prompt": capture_prompt,
        },
    )
    refuse_empty_stages(model, settings.layout)
    return estimate_of(model, protocol, settings)
