"""The device for one test, and what the test left in its memory."""

from __future__ import annotations

import gc
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from hpu_magic import units
from hpu_magic.errors import RefusedError, chain
from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.holders import storage_of
from hpu_magic.testing import DeviceMemoryWarning

if TYPE_CHECKING:
    import torch

__all__ = ["device_of"]

_MOST_NAMED = 3
# References, not numbers: a number may come to name another storage.
_Known = dict[int, Any]


class _Seen:
    """The tensors' storages that were there at the last look, and the bytes in use then."""

    def __init__(self) -> None:
        self.bytes = -1
        self.storages: _Known = {}

    def look(self, in_use: int) -> dict[int, torch.Tensor]:
        """Return the tensors on storages that were not there before, one each; note all."""
        found: dict[int, torch.Tensor] = {}
        storages: _Known = {}
        for tensor in _tensors():
            known = storage_of(tensor)
            if known is None:
                continue
            identity, _, reference = known
            if identity not in self.storages:
                found.setdefault(identity, tensor)
            storages[identity] = reference
        self.bytes, self.storages = in_use, storages
        return found


_seen = _Seen()


def device_of(item: pytest.Item) -> Iterator[torch.device]:
    """Yield the device to a test, and tell afterwards what it left there.

    Raises
    ------
    pytest.fail.Exception
        No card can be had; the text names the holders where they are known.
    """
    try:
        torch = device.take()
    except RefusedError as refused:
        pytest.fail(str(refused), pytrace=False)
    before = _in_use(torch)
    # Most tests leave memory as it was, and going through all objects takes a while.
    if before != _seen.bytes:
        _seen.look(before)
    last = getattr(sys, "last_value", None)
    yield torch.device("hpu")
    failure = getattr(sys, "last_value", None)
    if failed := failure is not None and failure is not last:
        _clear_frames(failure)
    after = _in_use(torch)
    if after != before:  # collecting garbage takes longer than most tests
        gc.collect()
        after = _in_use(torch)
    if after == before:
        return
    left = _seen.look(after)
    if after > before and left and not failed:
        path, line, _ = item.reportinfo()
        text = _told(item, after - before, left)
        warnings.warn_explicit(text, DeviceMemoryWarning, str(path), (line or 0) + 1)


def _in_use(torch: Any) -> int:
    """Bytes in use on the device, once its work is done."""
    torch.hpu.synchronize()
    return int(torch.hpu.memory_stats()["InUse"])


def _clear_frames(failure: BaseException) -> None:
    """Let go of the local variables that a failure's traceback holds; its report is written."""
    for one in chain(failure):
        traceback.clear_frames(one.__traceback__)
        for frame, _ in traceback.walk_tb(one.__traceback__):
            # Before Python 3.13 a copy of the variables stays as it was until somebody looks.
            _ = frame.f_locals


def _tensors() -> Iterator[torch.Tensor]:
    torch = sys.modules["torch"]
    for one in gc.get_objects():
        # Not isinstance, which asks proxies for their class.
        if issubclass(type(one), torch.Tensor):
            yield one
            if one.is_leaf and isinstance(one.grad, torch.Tensor):
                yield one.grad


def _told(item: pytest.Item, grown: int, left: dict[int, torch.Tensor]) -> str:
    by_size = sorted(left.values(), key=lambda one: -one.untyped_storage().nbytes())
    named = [_described(one) for one in by_size[:_MOST_NAMED]]
    if len(by_size) > _MOST_NAMED:
        named.append(f"and {len(by_size) - _MOST_NAMED} more")
    count = "1 tensor" if len(left) == 1 else f"{len(left)} tensors"
    return (
        f"{item.nodeid} left {count} on the device, {units.size(grown)} ({', '.join(named)}): "
        "something outside of the test holds on to them, such as a global variable or a cache."
    )


def _described(tensor: torch.Tensor) -> str:
    shape = " x ".join(map(str, tensor.shape)) or "one number"
    return f"{shape}, {str(tensor.dtype).removeprefix('torch.')}"
