"""What a causal language model of transformers' protocol takes and gives, whichever it is."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing.place import device_type

# Of the logits of a prompt, only the last token's choose the next one.
_LAST_LOGITS = ("logits_to_keep", "num_logits_to_keep")
# What models call the memory of earlier tokens.
_CACHES = ("past_key_values", "cache_params", "past_buckets_states")


@dataclass(frozen=True)
class Protocol:
    """How one model is called."""

    cache: str
    """Name under which it takes its cache and gives it back."""
    last_logits: str | None
    """Name of the number of positions at the end that logits are asked of, if it takes one."""
    positions: int | None
    """How many tokens it can place, if its configuration says."""


def protocol_of(model: nn.Module) -> Protocol:
    """Return how a model is called.

    Raises
    ------
    EstimateError
        It is no causal language model, or one without a cache.
    """
    if not isinstance(model, nn.Module):
        raise EstimateError(
            f"{type(model).__name__} is no torch.nn.Module, and only of those is there an estimate."
        )
    name = type(model).__name__
    config: Any = getattr(model, "config", None)
    parameters = inspect.signature(model.forward).parameters
    if getattr(config, "is_encoder_decoder", False):
        raise EstimateError(
            f"{name} is an encoder with a decoder, and an estimate of generation takes decoders "
            "alone: estimate each part with hpu_magic.estimate(part, inputs, train=False)."
        )
    if "input_ids" not in parameters:
        raise EstimateError(
            f"{name} does not take input_ids as causal language models of transformers do: "
            "estimate a pass of it with hpu_magic.estimate(model, inputs, train=False)."
        )
    cache = next((one for one in _CACHES if one in parameters), None)
    if cache is None or "use_cache" not in parameters:
        raise EstimateError(_without_cache(name))
    last = next((one for one in _LAST_LOGITS if one in parameters), None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    positions = getattr(text, "max_position_embeddings", None)
    return Protocol(cache, last, positions if isinstance(positions, int) else None)


def call(
    model: nn.Module, protocol: Protocol, tokens: torch.Tensor, cache: Any
) -> tuple[torch.Tensor, Any]:
    """Return the logits (batch x positions x vocabulary) and the cache after some tokens.

    Parameters
    ----------
    model : torch.nn.Module
        Of which `protocol_of` told the protocol.
    protocol : Protocol
        How it is called.
    tokens : torch.Tensor
        Token ids, batch x positions.
    cache : object or None
        What the call before gave; written into where the model does that. None at first.
    """
    options: dict[str, Any] = {"use_cache": True}
    if cache is not None:
        options[protocol.cache] = cache
    if protocol.last_logits is not None:
        options[protocol.last_logits] = 1
    output = model(input_ids=tokens, **options)
    logits, after = _part(output, "logits", 0), _part(output, protocol.cache, 1)
    name = type(model).__name__
    if not isinstance(logits, torch.Tensor):
        raise EstimateError(f"{name} returns no logits: give the model that has the language head.")
    if after is None or next(tensors_of(after), None) is None:
        raise EstimateError(_without_cache(name))
    return logits, after


def tensors_of(cache: Any) -> Iterator[torch.Tensor]:
    """Yield the floating point tensors of the card that a cache holds, of whatever form it is."""
    seen: set[int] = set()
    waiting = [cache]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            if one.device.type == device_type() and one.is_floating_point():
                yield one
        elif isinstance(one, Mapping):
            waiting += reversed(list(one.values()))
        elif isinstance(one, list | tuple):
            waiting += reversed(one)
        elif not isinstance(one, type | nn.Module) and hasattr(one, "__dict__"):
            waiting += reversed([v for v in vars(one).values() if not _is_plain(v)])


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | torch.dtype | torch.device)


def _part(output: Any, name: str, position: int) -> Any:
    if isinstance(output, Mapping):
        return output.get(name)
    if isinstance(output, tuple):
        return output[position] if position < len(output) else None
    return getattr(output, name, None)


def _without_cache(name: str) -> str:
    return (
        f"{name} gives no cache of earlier tokens, so that each new token would run all of them "
        "again: estimate one such pass with hpu_magic.estimate(model, ids, train=False)."
    )
