"""Recompute activations in the backward pass to save memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from hpu_magic.estimates.errors import EstimateError

KINDS = ("none", "full", "selective")

_KEPT = tuple(
    getattr(torch.ops.aten, name).default for name in ("mm", "addmm", "convolution", "_scaled_mm")
)


@contextmanager
def recomputing(model: nn.Module, kind: str) -> Iterator[None]:
    """Make the model's layers recompute their activations in the backward pass.

    See `layers`. "full" keeps only the inputs of each layer. "selective" also keeps the outputs of
    matmuls with weights, which are the most expensive to recompute. Raises `EstimateError` if the
    model has no such layers.
    """
    if kind == "none":
        yield
        return
    contexts: dict[str, Any] = {}
    if kind == "selective":
        contexts["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    changed = layers(model)
    if not changed:
        raise EstimateError(
            f"checkpointing={kind!r} recomputes layers, but {type(model).__name__} has no "
            "nn.ModuleList or nn.Sequential with several modules of the same class: use "
            'torch.utils.checkpoint in the model, with checkpointing="none".'
        )
    for layer in changed:
        vars(layer)["forward"] = _checkpointed(layer.forward, contexts)
    try:
        yield
    finally:
        for layer in changed:
            vars(layer).pop("forward", None)


def layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers in all module lists of a model whose members have the same class.

    An encoder-decoder has a list for each of its parts. If a model has a list of stages, the layers
    are those in the lists of the stages. A list inside a layer, such as a list of experts, does not
    consist of layers.
    """
    found: dict[nn.Module, None] = {}  # without duplicates
    _collect(model, found)
    return list(found)


def _collect(module: nn.Module, found: dict[nn.Module, None], fewest: int = 2) -> None:
    members = list(module.children())
    stages = False
    if _is_list_of_layers(module, fewest):
        stages = all(map(_is_stage, members))
        if not stages:
            found.update(dict.fromkeys(members))
            return
    for member in members:
        _collect(member, found, 1 if stages or fewest == 1 else 2)


def _is_list_of_layers(module: nn.Module, fewest: int = 1) -> bool:
    members = list(module.children())
    return (
        isinstance(module, nn.ModuleList | nn.Sequential)
        and len(members) >= fewest
        and len(set(map(type, members))) == 1
        and any(True for _ in members[0].children())
    )


def _is_stage(module: nn.Module) -> bool:
    """Return whether a module runs a list of layers and at most one other module with weights.

    The other module changes the resolution. A layer has several modules with weights, such as
    attention and normalization.
    """
    if isinstance(module, nn.ModuleList | nn.Sequential):
        return _is_list_of_layers(module)
    members = list(module.children())
    others = [each for each in members if not _is_list_of_layers(each)]
    weighted = [each for each in others if any(True for _ in each.parameters())]
    return len(others) < len(members) and len(weighted) <= 1


def _checkpointed(forward: Callable[..., Any], contexts: dict[str, Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **contexts, **kwargs)

    return run


def _policy(_: Any, operator: Any, *__: Any, **___: Any) -> CheckpointPolicy:
    if operator in _KEPT:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE
