"""Nested outputs as a flat tuple of tensors, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from habana_frameworks.torch.hpu.graphs._inputs import parts

import torch


class _TensorIndex(int):
    """The index of a tensor in the tuple, which no number among the outputs is taken for."""


class TensorPacker:
    """Separate tensors from the tuples, lists and dicts around them.

    Parameters
    ----------
    is_out_pack : bool
        Kept as an attribute; inputs and outputs are packed alike.
    verbose : bool
        Print a line for each call.
    """

    def __init__(self, is_out_pack: bool = False, verbose: bool = False) -> None:
        self.is_out_pack = is_out_pack
        self.verbose = verbose

    def pack(self, outs: Any) -> tuple[tuple[torch.Tensor, ...], Any]:
        """Return the tensors of `outs`, and `outs` with an index in place of each tensor."""
        tensors: list[torch.Tensor] = []
        metadata = _pack(outs, tensors)
        if self.verbose:
            print(f"TensorPacker packed {len(tensors)} tensors: {metadata}")
        return tuple(tensors), metadata

    def unpack(self, tensors: Sequence[torch.Tensor], metadata: Any) -> Any:
        """Return the structure that `pack` took apart, with `tensors` in their places.

        Raises
        ------
        IndexError
            There are fewer tensors than places.
        """
        if self.verbose:
            print(f"TensorPacker unpacks {len(tensors)} tensors: {metadata}")
        return _unpack(metadata, tensors)


def _pack(obj: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(obj, torch.Tensor):
        tensors.append(obj)
        return _TensorIndex(len(tensors) - 1)
    taken = parts(obj)
    return obj if taken is None else taken.make([_pack(one, tensors) for one in taken.children])


def _unpack(obj: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(obj, _TensorIndex):
        return tensors[obj]
    taken = parts(obj)
    return obj if taken is None else taken.make([_unpack(one, tensors) for one in taken.children])
