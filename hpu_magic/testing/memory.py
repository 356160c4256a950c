"""Provides the device to a test, detects leftover tensors, and frees the memory of failed tests."""

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
_left = pytest.StashKey[str]()
# References to the storages keep the IDs unique, because Python could assign the ID of a deleted
# storage to another one.
_Storages = dict[int, Any]


class _Known:
    """The storages of all tensors, and the number of bytes in use, at the last check."""

    def __init__(self) -> None:
        self.bytes = -1
        self.storages: _Storages = {}

    def update(self, in_use: int) -> dict[int, torch.Tensor]:
        """Record the storages of all tensors, and return a tensor for each new storage."""
        new: dict[int, torch.Tensor] = {}
        storages: _Storages = {}
        for tensor in _tensors():
            storage = storage_of(tensor)
            if storage is None:
                continue
            identity, _, reference = storage
            if identity not in self.storages:
                new.setdefault(identity, tensor)
            storages[identity] = reference
        self.bytes, self.storages = in_use, storages
        return new


_known = _Known()


def device_of(item: pytest.Item) -> Iterator[torch.device]:
    """Yield the device to a test, then warn about tensors that the test left on the device.

    Fail the test if no card is available. The message lists the holders of the cards, if known.
    """
    try:
        torch = device.take()
    except HPUError as refused:
        pytest.fail(str(refused), pytrace=False)
    before = _in_use_after_collection(torch, _known.bytes)
    # Iterating over all objects is slow, and most tests do not change the memory in use.
    if before != _known.bytes:
        _known.update(before)
    yield torch.device("hpu")
    after = _in_use_after_collection(torch, before)
    if after == before:
        return
    left = _known.update(after)
    if after > before and left and _failed not in item.stash:
        item.stash[_left] = _warning(item, after - before, left)


def _in_use(torch: Any) -> int:
    """Wait until the device has finished its work, and return the number of bytes in use."""
    torch.hpu.synchronize()
    return int(torch.hpu.memory_stats()["InUse"])


def _in_use_after_collection(torch: Any, expected: int) -> int:
    """Return the number of bytes in use; collect garbage first if it differs from `expected`."""
    in_use = _in_use(torch)
    if in_use == expected:
        return in_use
    gc.collect()
    return _in_use(torch)


class Failures:
    """Frees tensors that are kept alive by local variables in the tracebacks of failed tests."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep the error, because a debugger may still need its local variables.

        Also warn about leftover tensors, unless the teardown of a fixture failed, because its error
        may have kept tensors alive during the check.
        """
        report = yield
        if call.excinfo is not None:
            item.stash[_failed] = True
            self._errors.append(call.excinfo.value)
        elif call.when == "teardown" and _left in item.stash:
            path, line, _ = item.reportinfo()
            text = item.stash[_left]
            warnings.warn_explicit(text, DeviceMemoryWarning, str(path), (line or 0) + 1)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Free the variables before fixtures are torn down, because a fixture checks memory."""
        self._free()

    def pytest_runtest_logfinish(self) -> None:
        """Free the local variables of errors that were raised during teardown."""
        self._free()

    def _free(self) -> None:
        errors, self._errors = self._errors, []
        for error in _with_related(errors) if device.taken() else ():
            traceback.clear_frames(error.__traceback__)
            for frame, _ in traceback.walk_tb(error.__traceback__):
                # Python 3.12 and earlier only update the copy of the local variables on access.
                _ = frame.f_locals


def _with_related(errors: list[BaseException]) -> Iterator[BaseException]:
    """Yield each error, its cause and context, and the members of exception groups, once."""
    waiting, seen = list(errors), set()
    while waiting:
        error = waiting.pop()
        if id(error) not in seen:
            seen.add(id(error))
            yield error
            others = (error.__cause__, error.__context__, *getattr(error, "exceptions", ()))
            waiting += [other for other in others if isinstance(other, BaseException)]


def _tensors() -> Iterator[torch.Tensor]:
    torch = sys.modules["torch"]
    for value in gc.get_objects():
        # Do not use isinstance(), because it accesses the __class__ attribute of proxies.
        if issubclass(type(value), torch.Tensor):
            yield value
            if value.is_leaf and isinstance(value.grad, torch.Tensor):
                yield value.grad


def _warning(item: pytest.Item, grown: int, left: dict[int, torch.Tensor]) -> str:
    by_size = sorted(left.values(), key=lambda tensor: -tensor.untyped_storage().nbytes())
    named = [_described(tensor) for tensor in by_size[:_MOST_NAMED]]
    if len(by_size) > _MOST_NAMED:
        named.append(f"and {len(by_size) - _MOST_NAMED} more")
    count = "1 tensor" if len(left) == 1 else f"{len(left)} tensors"
    return (
        f"{item.nodeid} left {count} on the device, {units.size(grown)} ({', '.join(named)}): "
        "remove references to them outside of the test, for example in global variables or caches."
    )


def _described(tensor: torch.Tensor) -> str:
    shape = " x ".join(map(str, tensor.shape)) or "one number"
    return f"{shape}, {str(tensor.dtype).removeprefix('torch.')}"
