"""The seed of the card's own generator."""

from __future__ import annotations

from habana_frameworks.torch import _hpex_C

import torch


def random_seed(x: torch.Tensor) -> torch.Tensor:
    """Take a seed for a register of the card, in lazy mode; no operator reads it here.

    Parameters
    ----------
    x : torch.Tensor
        int32 on the device.

    Raises
    ------
    TypeError
        The seed is of another type.
    ValueError
        It lies on another device.
    RuntimeError
        In eager mode.
    """
    if x.dtype is not torch.int32:
        raise TypeError(f"Only int32 seed is accepted, got: {x.dtype}")
    if x.device.type != "hpu":
        raise ValueError("HPU RandomSeed is only supported on hpu device")
    return _hpex_C.random_seed(x)
