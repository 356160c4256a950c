"""Activation checkpointing of FP8 modules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.checkpoint


@contextlib.contextmanager
def activation_checkpointing() -> Iterator[None]:
    """Do nothing: FP8 modules detect when activation checkpointing recomputes a forward pass.

    During recomputation, the modules use the original scales and do not measure again.
    """
    yield


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool = False, **kwargs: Any
) -> Any:
    """Call `torch.utils.checkpoint.checkpoint`, with ``use_reentrant=False`` by default."""
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)
