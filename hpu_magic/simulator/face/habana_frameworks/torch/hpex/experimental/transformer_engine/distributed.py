"""Activation checkpointing of modules that compute in 8 bits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.checkpoint


@contextlib.contextmanager
def activation_checkpointing() -> Iterator[None]:
    """Announce a forward pass that is checkpointed, or runs again.

    Modules of this package know by themselves when a forward pass runs again within backward: it
    computes as it did, with the scales that it had, and is not measured a second time.
    """
    yield


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool = False, **kwargs: Any
) -> Any:
    """Call a function, and in backward again in place of keeping what lies between.

    It is PyTorch's ``torch.utils.checkpoint.checkpoint``, which does as well.
    """
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)
