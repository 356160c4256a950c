"""Plan a move: collect the tensors to copy, compute their sizes, and copy them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.runtime.device.device import width

# The device's allocator rounds sizes up to multiples of this many bytes.
_ALIGNMENT = 128


@dataclass
class _Span:
    """Overlapping tensors in a storage, which are copied together and then recreated as views."""

    start: int  # offset in the storage, in elements
    end: int
    tensors: list[Any]


def allocated_size(count: int) -> int:
    """Return the number of bytes that the device's allocator reserves for `count` bytes."""
    return -(-count // _ALIGNMENT) * _ALIGNMENT


class MovePlan:
    """Collects tensors and then copies all of them.

    A tensor is copied only once, no matter how often it is added. The copies of tensors that share
    memory also share memory.
    """

    def __init__(self, torch: Any, device: Any, dtype: Any) -> None:
        self.device = device
        self._torch = torch
        self._dtype = dtype
        self._tensors: dict[int, Any] = {}
        self._copies: dict[int, Any] = {}

    def add(self, path: str, tensor: Any) -> None:
        """Add a tensor, called ``path`` in errors; raise `HPUError` if it cannot be moved."""
        if tensor.device.type == "meta":
            raise HPUError(
                f"{path} is on the meta device and has no data: load the model with "
                f"from_pretrained(), or fill it with to_empty(device='cpu') and load_state_dict()."
            )
        if self._torch.nn.parameter.is_lazy(tensor):
            raise HPUError(
                f"{path} has no shape yet: run the module once on the cpu, then move it."
            )
        if tensor.device.type not in ("cpu", "hpu"):
            raise HPUError(f"{path} is on {tensor.device}: move it to the cpu first.")
        if self._dtype_of(tensor) != tensor.dtype or tensor.device.type != self.device.type:
            self._tensors[id(tensor)] = tensor

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, tensor: Any) -> bool:
        return id(tensor) in self._tensors

    def size(self, rounded: Callable[[int], int] = int) -> int:
        """Return the sum of the `rounded` sizes of all copies, counting shared memory only once."""
        total = 0
        for span in self._spans():
            if len(span.tensors) > 1:
                total += rounded((span.end - span.start) * self._width(span.tensors[0]))
            else:
                total += rounded(span.tensors[0].numel() * self._width(span.tensors[0]))
        return total

    def copy(self) -> None:
        """Make all copies; if the device runs out of memory, delete them and raise `HPUError`."""
        torch = self._torch
        try:
            for span in self._spans():
                if len(span.tensors) > 1:
                    self._copy_shared(span)
                else:
                    (tensor,) = span.tensors
                    self._copies[id(tensor)] = self._copied(tensor)
            if self.device.type == "hpu":
                torch.hpu.synchronize()
        except RuntimeError as error:
            self._copies.clear()
            raise HPUError(f"Nothing was moved: {error}") from error

    def moved(self, tensor: Any) -> Any:
        """Return the copy of `tensor`, or `tensor` itself if it was already on the target."""
        return self._copies.get(id(tensor), tensor)

    def _copied(self, tensor: Any) -> Any:
        if tensor.is_leaf:
            # Without detach(), the copy would not be a leaf.
            new = tensor.detach().to(self.device, self._dtype_of(tensor))
            return new.requires_grad_(tensor.requires_grad)
        return tensor.to(self.device, self._dtype_of(tensor))

    def _copy_shared(self, span: _Span) -> None:
        first = self._as_stored(span.tensors[0].detach())
        flat = first.as_strided((span.end - span.start,), (1,), span.start)
        copied = flat.to(self.device, self._dtype_of(first))
        for tensor in span.tensors:
            view = copied.as_strided(
                tensor.size(), tensor.stride(), tensor.storage_offset() - span.start
            )
            view = view.conj() if tensor.is_conj() else view
            view = self._torch._neg_view(view) if tensor.is_neg() else view
            if tensor.is_leaf:
                view = view.detach().requires_grad_(tensor.requires_grad)
            self._copies[id(tensor)] = view

    def _as_stored(self, tensor: Any) -> Any:
        """Return a view of the stored values, undoing a lazy conjugation or negation."""
        tensor = tensor.conj() if tensor.is_conj() else tensor
        return self._torch._neg_view(tensor) if tensor.is_neg() else tensor

    def _spans(self) -> list[_Span]:
        """Group the tensors into spans of overlapping memory."""
        alone: list[_Span] = []
        by_storage: dict[tuple[int, Any], list[_Span]] = {}
        for tensor in self._tensors.values():
            plain = tensor.layout == self._torch.strided and tensor.numel() > 0
            if not plain or not tensor.is_leaf:
                alone.append(_Span(0, 0, [tensor]))
                continue
            start = tensor.storage_offset()
            steps = zip(tensor.size(), tensor.stride(), strict=True)
            end = start + sum((length - 1) * stride for length, stride in steps) + 1
            key = (tensor.untyped_storage().data_ptr(), tensor.dtype)
            by_storage.setdefault(key, []).append(_Span(start, end, [tensor]))
        for spans in by_storage.values():
            alone += _merged(spans)
        return alone

    def _dtype_of(self, tensor: Any) -> Any:
        converts = self._dtype is not None and tensor.is_floating_point()
        return self._dtype if converts else tensor.dtype

    def _width(self, tensor: Any) -> int:
        dtype = self._dtype_of(tensor)
        return width(dtype) if self.device.type == "hpu" else dtype.itemsize


def _merged(spans: list[_Span]) -> list[_Span]:
    merged: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if merged and span.start < merged[-1].end:
            merged[-1].end = max(merged[-1].end, span.end)
            merged[-1].tensors += span.tensors
        else:
            merged.append(span)
    return merged
