"""Call the causal language models of transformers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing.fake_card import device_type

# Possible names of the argument that limits the logits to the last positions.
_LAST_LOGITS = ("logits_to_keep", "num_logits_to_keep")
# Possible names of the argument for the KV cache.
_CACHES = ("past_key_values", "cache_params", "past_buckets_states")


@dataclass(frozen=True)
class Protocol:
    """The names of a model's arguments, and its maximum length."""

    cache: str
    """Name of the cache, both as an argument and as an output."""
    last_logits: str | None
    """Name of the argument that limits the logits to the last positions, if there is one."""
    positions: int | None
    """Maximum number of tokens, if the configuration specifies it."""


def protocol_of(model: nn.Module) -> Protocol:
    """Determine the names of a model's arguments.

    Raises `EstimateError` if the model is not a causal language model or has no cache.
    """
    if not isinstance(model, nn.Module):
        raise EstimateError(f"The model is a {type(model).__name__}; pass a torch.nn.Module.")
    name = type(model).__name__
    config: Any = getattr(model, "config", None)
    parameters = inspect.signature(model.forward).parameters
    if getattr(config, "is_encoder_decoder", False):
        raise EstimateError(
            f"{name} has an encoder, but generation can only be estimated for decoders: estimate "
            "each part with hpu_magic.estimate(part, inputs, train=False)."
        )
    if "input_ids" not in parameters:
        raise EstimateError(
            f"{name} has no argument input_ids, unlike causal language models of transformers: "
            "estimate a pass with hpu_magic.estimate(model, inputs, train=False)."
        )
    cache = next((each for each in _CACHES if each in parameters), None)
    if cache is None or "use_cache" not in parameters:
        raise EstimateError(_without_cache(name))
    last = next((each for each in _LAST_LOGITS if each in parameters), None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    positions = getattr(text, "max_position_embeddings", None)
    return Protocol(cache, last, positions if isinstance(positions, int) else None)


def call(
    model: nn.Module, protocol: Protocol, tokens: torch.Tensor, cache: Any
) -> tuple[torch.Tensor, Any]:
    """Return the logits (batch x positions x vocabulary) and the cache after processing tokens.

    ``tokens`` are token ids (batch x positions). ``cache`` is the cache returned by the previous
    call, which the model may modify, or None.
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
        raise EstimateError(
            f"{name} returns no logits; pass the model with its language-modeling head."
        )
    if after is None or next(tensors_of(after), None) is None:
        raise EstimateError(_without_cache(name))
    return logits, after


def tensors_of(cache: Any) -> Iterator[torch.Tensor]:
    """Yield the floating-point tensors on the card that a cache of any type contains."""
    seen: set[int] = set()
    waiting = [cache]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            if value.device.type == device_type() and value.is_floating_point():
                yield value
        elif isinstance(value, Mapping):
            waiting += reversed(list(value.values()))
        elif isinstance(value, list | tuple):
            waiting += reversed(value)
        elif not isinstance(value, type | nn.Module) and hasattr(value, "__dict__"):
            waiting += reversed([v for v in vars(value).values() if not _is_plain(v)])


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
        f"{name} has no cache, so all previous tokens are processed again for each new one: "
        "estimate such a pass with hpu_magic.estimate(model, ids, train=False)."
    )
