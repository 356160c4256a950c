"""Seed of the card's hardware random number generator."""

from __future__ import annotations

from habana_frameworks.torch import _hpex_C

import torch


def random_seed(x: torch.Tensor) -> torch.Tensor:
    """Set the card's seed register in lazy mode; this has no effect in the simulator.

    Raises TypeError if `x` is not int32, ValueError if it is on another device, and RuntimeError in
    eager mode.
    """
    if x.dtype is not torch.int32:
        raise TypeError(f"Only int32 seed is accepted, got: {x.dtype}")
    if x.device.type != "hpu":
        raise ValueError("HPU RandomSeed is only supported on hpu device")
    return _hpex_C.random_seed(x)
