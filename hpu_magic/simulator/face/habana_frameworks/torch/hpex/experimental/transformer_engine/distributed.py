"""Activation checkpointing of modules that compute in 8 bits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.checkpoint


@contextlib.contextmanager
def activation_checkpointing() -> Iterator[None]:
    """Do nothing.

    Modules of this package detect when a checkpoint recomputes a forward pass: they use the
    original scales and do not measure again.
    """
    yield


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool = False, **kwargs: Any
) -> Any:
    """Call a function, and recompute it in the backward pass instead of storing its activations.

    Same as PyTorch's ``torch.utils.checkpoint.checkpoint``.
    """
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)
