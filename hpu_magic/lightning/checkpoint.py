"""Checkpoints that can be loaded on a machine without a card."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch


def _on_host(value: Any) -> Any:
    """Return a copy of `value` with all device tensors, even those inside objects, on the host.

    Objects are copied by pickling and unpickling them, as in ``torch.save``, but tensors and arrays
    are not pickled.
    """
    return _Copies().copied(value)


class _Copies:
    """Copies of tensors on the host; identical tensors, such as tied weights, share one copy."""

    def __init__(self) -> None:
        # The originals are kept alive so that their ids stay unique.
        self._memory: dict[tuple[Any, ...], tuple[torch.Tensor, torch.Tensor]] = {}
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def copied(self, value: Any) -> Any:
        file = io.BytesIO()
        pickler = _Pickler(file, self)
        pickler.dump(value)
        file.seek(0)
        return _Unpickler(file, pickler.kept).load()

    def of(self, tensor: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
        """Return a copy of a tensor that has the same class and the same attributes."""
        if tensor.device.type != "hpu":
            return tensor, {}
        if id(tensor) not in self._tensors:
            if _is_made_of_tensors(tensor):
                copied = tensor.detach().cpu()
            else:
                copied = self._of_memory(tensor.detach().as_subclass(torch.Tensor))
                if type(tensor) is not torch.Tensor or vars(tensor):
                    copied = copied.as_subclass(type(tensor))  # type: ignore[arg-type]
            self._tensors[id(tensor)] = (tensor, copied.requires_grad_(tensor.requires_grad))
        copied = self._tensors[id(tensor)][1]
        missing = vars(tensor).keys() - vars(copied).keys()
        return copied, {name: value for name, value in vars(tensor).items() if name in missing}

    def _of_memory(self, plain: torch.Tensor) -> torch.Tensor:
        key = (
            plain.untyped_storage()._cdata,
            plain.dtype,
            plain.storage_offset(),
            plain.shape,
            plain.stride(),
            plain.is_conj(),
            plain.is_neg(),
        )
        if key not in self._memory:
            self._memory[key] = (plain, plain.cpu())
        return self._memory[key][1].detach()


def _is_made_of_tensors(tensor: torch.Tensor) -> bool:
    """Return whether a tensor wraps other tensors, such as a DTensor or a jagged tensor."""
    return tensor.layout is not torch.strided or hasattr(tensor, "__tensor_flatten__")


class _Pickler(pickle.Pickler):
    """Pickles objects, but stores tensors and arrays in a list."""

    def __init__(self, file: io.BytesIO, copies: _Copies) -> None:
        super().__init__(file, protocol=pickle.DEFAULT_PROTOCOL)
        self._copies = copies
        self.kept: list[Any] = []

    def persistent_id(self, obj: Any) -> int | None:
        """Return the object's index in the list, or None if the object must be pickled."""
        if _is_tensor(obj):
            copied, attributes = self._copies.of(obj)
            if attributes:
                return None
            self.kept.append(copied)
        elif isinstance(obj, torch.UntypedStorage | torch.TypedStorage):
            # torch.save supports storages, but pickle does not.
            self.kept.append(obj.cpu() if obj.device.type == "hpu" else obj)
        elif type(obj) is np.ndarray and not obj.dtype.hasobject:
            self.kept.append(obj)
        else:
            return None
        return len(self.kept) - 1

    def reducer_override(self, obj: Any) -> Any:
        """Pickle a tensor's attributes too, because other values may reference them."""
        if not _is_tensor(obj):
            return NotImplemented
        copied, attributes = self._copies.of(obj)
        return _itself, (copied,), attributes, None, None, _add_attributes


def _is_tensor(obj: Any) -> bool:
    return isinstance(obj, torch.Tensor) and not torch.nn.parameter.is_lazy(obj)


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _add_attributes(tensor: torch.Tensor, attributes: dict[str, Any]) -> None:
    vars(tensor).update(attributes)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(file)
        self._kept = kept

    def persistent_load(self, place: Any) -> Any:
        """Return the object at an index in the list."""
        return self._kept[place]


class HPUCheckpointIOBase:
    """Writes checkpoints whose tensors are on the host, so they can be loaded without a card."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Move the checkpoint's tensors to the host, and write it."""
        super().save_checkpoint(  # type: ignore[misc]
            _on_host(checkpoint), path, storage_options=storage_options
        )
