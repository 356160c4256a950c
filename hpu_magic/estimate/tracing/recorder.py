"""Operators as they run on tensors without memory, and how long what they make is held."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hpu_magic.estimate.tracing.modules import RunningModules
from hpu_magic.estimate.tracing.place import device_type
from hpu_magic.estimate.tracing.program import Operand, Operation, Phase, Program, Role, Storage

# A card keeps these in half their size, or does not compute with them at all.
_NARROWED = {torch.int64: 2, torch.float64: 2, torch.complex128: 2}

_QUESTIONS = torch.ops.prim.device.default


class Recorder(TorchDispatchMode):
    """Appends to a program what runs on the card while it is active."""

    def __init__(self, program: Program, modules: RunningModules) -> None:
        super().__init__()
        self.program = program
        self._modules = modules
        # By the address of the storage; each entry leaves with its storage.
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.phase: Phase | None = None
        """What all operations belong to; told from autograd where it is None."""
        self.times = 1
        self._noting = True
        self._card = device_type()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator on the fake tensors, and note it."""
        kwargs = kwargs or {}
        if func is _QUESTIONS:
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if self._noting:
            self._note(func, args, kwargs, result)
        return result

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Note nothing meanwhile."""
        self._noting = False
        try:
            yield
        finally:
            self._noting = True

    def hold(self, tensor: torch.Tensor, role: Role, module: str = "", *, count: int = 1) -> None:
        """Make known `count` tensors like this one, which no operation makes."""
        storage = self.program.storages[self._index(tensor)]
        storage.bytes *= count
        storage.role, storage.module = role, module

    def stand_for(self, tensor: torch.Tensor) -> None:
        """Take a tensor for others whose memory is counted already."""
        self.program.storages[self._index(tensor)].bytes = 0

    def index_of(self, tensor: torch.Tensor) -> int | None:
        """Return the index of a tensor's storage, or None if no operation has met it."""
        found = self._known.get(tensor.untyped_storage()._cdata)
        return None if found is None else found[1]

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        read = [*_of(self._card, args), *_of(self._card, kwargs.values())]
        made = list(_of(self._card, (result,)))
        if not made and not read:
            return
        operations = self.program.operations
        known = len(self.program.storages)
        reads = tuple(self._operand(tensor) for tensor in read)
        written = list(made)
        if func._schema.is_mutable:
            written += _written(self._card, func, args, kwargs)
        writes = tuple({id(one): self._operand(one) for one in written}.values())
        new = [operand for operand in writes if operand.storage >= known]
        is_view = bool(made) and not new and not func._schema.is_mutable
        name, phase = self._modules.now()
        number = len(operations)
        for operand in new:
            storage = self.program.storages[operand.storage]
            storage.born, storage.module = number, name
        for operand in (*reads, *writes):
            self.program.storages[operand.storage].last_used = number
        plain = tuple(_plain(one) for one in args)
        operations.append(
            Operation(func, reads, writes, is_view, name, self.phase or phase, plain, self.times)
        )

    def _operand(self, tensor: torch.Tensor) -> Operand:
        index = self._index(tensor)
        in_all = tensor.untyped_storage().nbytes() // tensor.itemsize
        covered = card_bytes(tensor.dtype, min(tensor.numel(), in_all))
        return Operand(index, tuple(tensor.shape), tensor.dtype, covered)

    def _index(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        address = storage._cdata
        found = self._known.get(address)
        if found is not None and found[0]() is storage:
            return found[1]
        storages = self.program.storages
        index = len(storages)
        storages.append(Storage(card_bytes(tensor.dtype, storage.nbytes() // tensor.itemsize)))
        self._known[address] = (weakref.ref(storage, self._gone(address, index)), index)
        return index

    def _gone(self, address: int, index: int) -> Callable[[Any], None]:
        program, known = self.program, self._known

        def note(reference: weakref.ref[Any]) -> None:
            program.storages[index].freed = len(program.operations)
            if (found := known.get(address)) is not None and found[0] is reference:
                del known[address]

        return note


def card_bytes(dtype: torch.dtype, elements: int) -> int:
    """Return what a card takes for elements of a type."""
    return elements * dtype.itemsize // _NARROWED.get(dtype, 1)


def _of(card: str, values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.device.type == card:
                yield value
        elif isinstance(value, list | tuple):
            yield from _of(card, value)


def _plain(value: Any) -> Any:
    """Return an argument without the tensors in it, which would be held."""
    if isinstance(value, list | tuple):
        return tuple(_plain(one) for one in value)
    return None if isinstance(value, torch.Tensor) else value


def _written(
    card: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """Return the arguments that the operator writes into, by its schema."""
    found: list[torch.Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            by_name = kwargs.get(argument.name)
            value = args[position] if position < len(args) else by_name
            found += _of(card, (value,))
    return found
