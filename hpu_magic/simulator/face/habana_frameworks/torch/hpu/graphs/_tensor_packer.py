"""Convert nested outputs to a flat tuple of tensors and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from habana_frameworks.torch.hpu.graphs._inputs import parts

import torch


class _TensorIndex(int):
    """Index of a tensor in the tuple; a separate type distinguishes it from an integer output."""


class TensorPacker:
    """Separates tensors from the tuples, lists and dicts that contain them.

    `is_out_pack` has no effect; `verbose` prints one line per call.
    """

    def __init__(self, is_out_pack: bool = False, verbose: bool = False) -> None:
        self.is_out_pack = is_out_pack
        self.verbose = verbose

    def pack(self, outs: Any) -> tuple[tuple[torch.Tensor, ...], Any]:
        """Return the tensors in `outs`, and `outs` with an index in place of each tensor."""
        tensors: list[torch.Tensor] = []
        metadata = _pack(outs, tensors)
        if self.verbose:
            print(f"TensorPacker packed {len(tensors)} tensors: {metadata}")
        return tuple(tensors), metadata

    def unpack(self, tensors: Sequence[torch.Tensor], metadata: Any) -> Any:
        """Undo `pack` with the given tensors; raise IndexError if there are too few tensors."""
        if self.verbose:
            print(f"TensorPacker unpacks {len(tensors)} tensors: {metadata}")
        return _unpack(metadata, tensors)


def _pack(obj: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(obj, torch.Tensor):
        tensors.append(obj)
        return _TensorIndex(len(tensors) - 1)
    container = parts(obj)
    if container is None:
        return obj
    return container.make([_pack(child, tensors) for child in container.children])


def _unpack(obj: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(obj, _TensorIndex):
        return tensors[obj]
    container = parts(obj)
    if container is None:
        return obj
    return container.make([_unpack(child, tensors) for child in container.children])
