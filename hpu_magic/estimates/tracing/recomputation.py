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

    The layers are the members of the model's longest module list in which all modules have the same
    class. "full" keeps only the inputs of each layer. "selective" also keeps the outputs of matmuls
    with weights, which are the most expensive to recompute. Raises `EstimateError` if the model has
    no such module list.
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
    """Return the members of the model's longest module list in which all have the same class."""
    longest: list[nn.Module] = []
    for module in model.modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            members = list(module)
            alike = len(set(map(type, members))) == 1 and len(members) > 1
            if alike and any(True for _ in members[0].children()) and len(members) > len(longest):
                longest = members
    return longest


def _checkpointed(forward: Callable[..., Any], contexts: dict[str, Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **contexts, **kwargs)

    return run


def _policy(_: Any, operator: Any, *__: Any, **___: Any) -> CheckpointPolicy:
    if operator in _KEPT:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE
