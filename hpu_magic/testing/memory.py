"""The device for one test, what the test left in its memory, and the memory of failures."""

from __future__ import annotations

import gc
import sys
import traceback
import warnings
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from hpu_magic import units
from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.holders import storage_of
from hpu_magic.testing import DeviceMemoryWarning

if TYPE_CHECKING:
    import torch


_MOST_NAMED = 3
_failed = pytest.StashKey[bool]()
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
    except HPUError as refused:
        pytest.fail(str(refused), pytrace=False)
    before = _in_use_unlike(torch, _seen.bytes)
    # Most tests leave memory as it was, and going through all objects takes a while.
    if before != _seen.bytes:
        _seen.look(before)
    yield torch.device("hpu")
    after = _in_use_unlike(torch, before)
    if after == before:
        return
    left = _seen.look(after)
    if after > before and left and _failed not in item.stash:
        path, line, _ = item.reportinfo()
        text = _told(item, after - before, left)
        warnings.warn_explicit(text, DeviceMemoryWarning, str(path), (line or 0) + 1)


def _in_use(torch: Any) -> int:
    """Bytes in use on the device, once its work is done."""
    torch.hpu.synchronize()
    return int(torch.hpu.memory_stats()["InUse"])


def _in_use_unlike(torch: Any, expected: int) -> int:
    """Bytes in use; if they are not what is expected, without garbage, which takes a while."""
    in_use = _in_use(torch)
    if in_use == expected:
        return in_use
    gc.collect()
    return _in_use(torch)


class Failures:
    """Frees the tensors of failed tests, of which tracebacks hold the local variables."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note the error, as a debugger may still look at its variables."""
        report = yield
        if call.excinfo is not None:
            item.stash[_failed] = True
            self._errors.append(call.excinfo.value)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Free the variables before the fixtures end, of which one looks at the memory."""
        self._free()

    def pytest_runtest_logfinish(self) -> None:
        """Free the variables of what failed since."""
        self._free()

    def _free(self) -> None:
        errors, self._errors = self._errors, []
        for one in _all_of(errors) if device.taken() else ():
            traceback.clear_frames(one.__traceback__)
            for frame, _ in traceback.walk_tb(one.__traceback__):
                # Before Python 3.13 a copy of the variables stays as it was until somebody looks.
                _ = frame.f_locals


def _all_of(errors: list[BaseException]) -> Iterator[BaseException]:
    """Yield errors, those that they are made of, and those before them, shown or not."""
    waiting, seen = list(errors), set()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            others = (one.__cause__, one.__context__, *getattr(one, "exceptions", ()))
            waiting += [other for other in others if isinstance(other, BaseException)]


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
