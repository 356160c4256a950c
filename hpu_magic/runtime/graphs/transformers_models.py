"""Run transformers models in HPU Graphs, without host reads of masks, and with reusable caches."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from hpu_magic.runtime.graphs.shapes import users_level

# PyTorch's attention function, always called with a mask. By default, transformers reads the mask
# on the host so that it can omit a mask without padding, but host reads are not allowed in a
# capture.
_ATTENTION = "sdpa_in_hpu_graphs"
# Outputs of each step that generate() keeps and that the next replay would overwrite.
_KEPT = (
    "hidden_states",
    "attentions",
    "decoder_hidden_states",
    "decoder_attentions",
    "cross_attentions",
)


def is_plain_model(value: Any) -> bool:
    """Return whether `value` is a model from transformers, without importing the library.

    Returns False for a model whose ``generate`` was adapted to HPU Graphs, for example by
    optimum-habana, because such a model manages its own masks and caches.
    """
    library = sys.modules.get("transformers.modeling_utils")
    if library is None or not isinstance(value, library.PreTrainedModel):
        return False
    generate = getattr(value, "generate", None)
    return generate is None or "hpu_graphs" not in inspect.signature(generate).parameters


def make_capturable(model: Any) -> None:
    """Choose implementations of the model's layers that avoid host reads and fallbacks."""
    # The default implementation counts each expert's tokens with an operator that the device does
    # not support.
    if getattr(model.config, "_experts_implementation", None) == "grouped_mm":
        model.set_experts_implementation("batched_mm")
    if model.config._attn_implementation == "sdpa":
        _register_attention()
        model.set_attn_implementation(_ATTENTION)


def _register_attention() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    attention, masks = AttentionInterface(), AttentionMaskInterface()
    if _ATTENTION in attention.valid_keys():
        return
    sdpa_mask = masks["sdpa"]

    def unskipped_mask(*args: Any, **kwargs: Any) -> Any:
        skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        return sdpa_mask(*args, **{**kwargs, **skips})

    attention.register(_ATTENTION, attention["sdpa"])
    masks.register(_ATTENTION, unskipped_mask)


class GraphedModel:
    """Decides which calls to a wrapped model replay graphs, and owns the graphs' caches.

    A graph always reads and writes the tensors that it was captured with. A graph therefore cannot
    use a cache that grows, and if each call to ``generate`` created a new static cache, it would
    also need new graphs. With this class, ``generate`` uses a static cache by default, and reuses
    an earlier cache of the same size.

    The vendor's function has already wrapped the model; this class replaces its ``forward`` and
    ``generate``. When a cache of a different length replaces the graphs' caches, the graphs are
    freed and ``cleared`` is called.
    """

    def __init__(self, model: Any, cleared: Callable[[], None]) -> None:
        import torch
        from transformers import Cache

        self._model, self._cleared = model, cleared
        self._forward = model.forward
        self._pool: dict[Any, Any] = {}
        self._held: dict[int, _HeldCache] = {}
        self._generating = 0
        self._warned: set[str] = set()
        self._cache_type, self._tensor_type = Cache, torch.Tensor
        names = inspect.signature(model.forward).parameters
        self._reads_text = "input_ids" in names and "attention_mask" in names
        model.forward = functools.wraps(self._forward)(
            lambda *args, **kwargs: self._call(*args, **kwargs)
        )
        if hasattr(model, "generate"):
            generate = model.generate
            model.generate = functools.wraps(generate)(
                lambda *args, **kwargs: self._generate(generate, *args, **kwargs)
            )

    def hint(self) -> str:
        """Return advice for inputs that grow with the text, phrased as the end of a sentence."""
        if self._held or not self._model.can_generate():
            return ""
        return ", and let generate use a static cache, which does not grow with the text"

    def _generate(self, generate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._takes_static_cache(kwargs):
            kwargs["cache_implementation"] = "static"
        self._generating += 1
        try:
            result = generate(*args, **kwargs)
        finally:
            self._generating -= 1
        returned = getattr(result, "past_key_values", None)
        if any(cache is returned for cache in self._pool.values()):
            # The next call to generate() resets the original cache.
            result.past_key_values = copy.deepcopy(returned)
        return result

    def _takes_static_cache(self, options: dict[str, Any]) -> bool:
        others = ("past_key_values", "assistant_model", "prompt_lookup_num_tokens")
        if any(options.get(name) is not None for name in others):
            return False
        if not getattr(self._model, "_can_compile_fullgraph", True):
            return False
        configuration = options.get("generation_config") or self._model.generation_config
        chosen = {
            name: options[name] if name in options else getattr(configuration, name, None)
            for name in ("cache_implementation", "use_cache")
        }
        return chosen["cache_implementation"] is None and chosen["use_cache"] is not False

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("bypass_hpu_graphs") or (self._reads_text and _has_pictures(kwargs)):
            return self._plainly(*args, **kwargs)
        cache = self._cache_in((*args, *kwargs.values()))
        held = self._held.get(id(cache))
        if cache is None:
            if self._reads_text:
                kwargs = self._with_mask(args, kwargs)
            return self._graphed(cache, args, kwargs)
        if held is not None and held.is_ready():
            held.bring_back()
            return self._graphed(cache, args, kwargs)
        return self._with_new_cache(cache, args, kwargs)

    def _with_new_cache(self, cache: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the model with a cache that no graph uses yet, or that lacks the encoder's output."""
        layers = _layers(cache)
        reason = _unsuitable(cache, layers)
        if reason:
            self._warn(reason)
            return self._plainly(*args, **kwargs)
        if not _initialized(layers):
            if self._is_generates_own(cache) and kwargs.get("past_key_values") is cache:
                cache = kwargs["past_key_values"] = self._pooled(cache, kwargs)
            if not _initialized(_layers(cache)):
                # This run creates the cache's tensors; otherwise, they would be created in the
                # capture and again in each replay.
                result = self._plainly(*args, **kwargs)
                if not _initialized(_layers(cache)) or _is_of_two(cache):
                    return result
                cache.reset()
        held = self._held.setdefault(id(cache), _HeldCache(cache))
        if not held.is_ready():
            return self._plainly(*args, **kwargs)  # stores the encoder's output in the cache
        held.bring_back()
        return self._graphed(cache, args, kwargs)

    def _graphed(self, cache: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        # The wrapper would capture another graph for views, or for keyword arguments in a different
        # order.
        args = [self._own_memory(value) for value in args]
        kwargs = {name: self._own_memory(kwargs[name]) for name in sorted(kwargs)}
        return self._kept(self._forward(*args, **kwargs), cache)

    def _own_memory(self, value: Any) -> Any:
        if not isinstance(value, self._tensor_type):
            return value
        if value.is_contiguous() and not value._is_view():
            return value
        import torch

        return value.clone(memory_format=torch.contiguous_format)

    def _with_mask(self, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Add an all-ones mask if there is none, so that the input IDs are not read on the host.

        Inputs that have position IDs but no mask may contain packed sequences, so they are left
        unchanged.
        """
        text = args[0] if args else kwargs.get("input_ids")
        positions = kwargs.get("position_ids") is not None and not self._generating
        if len(args) > 1 or text is None or kwargs.get("attention_mask") is not None or positions:
            return kwargs
        return {**kwargs, "attention_mask": text.new_ones(text.shape[:2])}

    def _plainly(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(*args, **{**kwargs, "bypass_hpu_graphs": True})

    def _cache_in(self, values: Any) -> Any:
        return next((value for value in values if isinstance(value, self._cache_type)), None)

    def _is_generates_own(self, cache: Any) -> bool:
        return bool(self._generating) and not getattr(cache, "_is_user_defined", False)

    def _pooled(self, cache: Any, inputs: dict[str, Any]) -> Any:
        """Reset and return the graphs' cache of this size, or return `cache` if there is none."""
        import torch

        lengths = tuple(layer.max_cache_len for layer in _layers(cache))
        rows = next(value.shape[0] for value in inputs.values() if isinstance(value, torch.Tensor))
        autocast = torch.is_autocast_enabled("hpu") and torch.get_autocast_dtype("hpu")
        size = (lengths, rows, self._model.dtype, autocast)
        known = self._pool.get(size)
        if known is None:
            if any(other[0] != lengths for other in self._pool):
                self._clear()
            self._pool[size] = cache
            return cache
        known.reset()
        return known

    def _clear(self) -> None:
        self._pool.clear()
        self._held.clear()
        self._model.clear_cache()
        self._cleared()

    def _kept(self, outputs: Any, cache: Any) -> Any:
        """Return a graph's outputs, copying those that the caller uses after the next replay."""
        of_dict = isinstance(outputs, dict)
        if not of_dict and not isinstance(outputs, tuple):
            return outputs
        named = outputs.items() if of_dict else enumerate(outputs)
        copies = {
            name: copy.deepcopy(value)
            for name, value in named
            if (isinstance(value, self._cache_type) and value is not cache)
            or (self._generating and name in _KEPT and value is not None)
        }
        if not copies:
            return outputs
        if of_dict:
            return type(outputs)(**{**outputs, **copies})
        return tuple(copies.get(place, value) for place, value in enumerate(outputs))

    def _warn(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            name = type(self._model).__name__
            warnings.warn(f"{name} ran without HPU Graphs: {sentence}", stacklevel=users_level())


class _HeldCache:
    """A static cache, and the tensors in it that graphs read and write."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache  # the cache is kept alive, because its id is used as a key
        self._is_of_two = _is_of_two(cache)
        self._tensors = [
            (layer, name, getattr(layer, name))
            for layer in _layers(cache)
            for name in ("keys", "values", "cumulative_length")
            if hasattr(layer, name)  # earlier releases have no cumulative_length
        ]

    def is_ready(self) -> bool:
        """Return whether the cache contains the encoder's output, if there is an encoder."""
        return not self._is_of_two or all(self.cache.is_updated.values())

    def bring_back(self) -> None:
        """Restore the cache's own tensors if, for example, beam search has replaced them."""
        for layer, name, own in self._tensors:
            current = getattr(layer, name)
            if current is not own:
                own.copy_(current)
                setattr(layer, name, own)


def _has_pictures(inputs: dict[str, Any]) -> bool:
    """Return whether the inputs contain images, whose positions are read on the host."""
    return any(name.startswith("pixel_values") and inputs[name] is not None for name in inputs)


def _is_of_two(cache: Any) -> bool:
    from transformers import EncoderDecoderCache

    return isinstance(cache, EncoderDecoderCache)


def _parts(cache: Any) -> Iterator[Any]:
    if _is_of_two(cache):
        yield cache.self_attention_cache
        yield cache.cross_attention_cache
    else:
        yield cache


def _layers(cache: Any) -> list[Any]:
    return [layer for part in _parts(cache) for layer in part.layers]


def _initialized(layers: list[Any]) -> bool:
    return all(getattr(layer, "is_initialized", True) for layer in layers)


def _unsuitable(cache: Any, layers: list[Any]) -> str | None:
    """Return why a graph cannot use a cache, or None if it can."""
    from transformers.cache_utils import StaticLayer

    kinds = {type(layer) for layer in layers}
    offloaded = any(getattr(part, "offloading", False) for part in _parts(cache))
    if kinds == {StaticLayer} and not offloaded:
        return None
    others = sorted(kind.__name__ for kind in kinds - {StaticLayer})
    if any(name.startswith("Static") for name in others):
        return (
            f"the cache's layers {', '.join(others)} count tokens in Python, which a replay does "
            f"not run."
        )
    return (
        f"its {type(cache).__name__} allocates memory for each token, but a graph always uses the "
        'same memory: generate with cache_implementation="static", or call the model with a '
        "StaticCache."
    )
