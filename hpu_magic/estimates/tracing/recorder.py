"""Record the operators that run on a fake card, and the lifetimes of storages."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.weak import WeakIdKeyDictionary

from hpu_magic.estimates.tracing.fake_card import FakeCard, Listener, device_type
from hpu_magic.estimates.tracing.function_calls import FunctionCalls
from hpu_magic.estimates.tracing.modules import RunningModules
from hpu_magic.estimates.tracing.program import (
    NEVER,
    Operand,
    Operation,
    Phase,
    Program,
    Role,
    Storage,
    card_bytes,
)


class Recorder:
    """Inside a with block, appends the operators that run on the active fake card to a program."""

    def __init__(self, program: Program, modules: RunningModules) -> None:
        self.program = program
        self._modules = modules
        # The keys are addresses of storages; an entry is removed when its storage is deleted.
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.phase: Phase | None = None
        """The phase of all operations; if None, the state of autograd determines the phase."""
        self.times = 1
        self.calls: FunctionCalls | None = None
        """The calls of PyTorch functions to which operations belong, if they are needed."""
        self._listeners: list[Listener | None] = []
        self._card: FakeCard | None = None
        self._closed = False
        self._place = device_type()
        self._on_host = WeakIdKeyDictionary()

    def __enter__(self) -> Recorder:
        self._listen(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        _active_card().listener = self._listeners.pop()

    @contextmanager
    def instead(self, listener: Listener | None) -> Iterator[None]:
        """Inside the with block, call another listener or none, instead of recording operators."""
        self._listen(listener)
        try:
            yield
        finally:
            self.__exit__()

    def _listen(self, listener: Listener | None) -> None:
        card = self._card = _active_card()
        self._listeners.append(card.listener)
        card.listener = listener

    def close(self) -> None:
        """Treat all storages that still exist as permanent."""
        self._closed = True

    def hold(self, tensor: torch.Tensor, role: Role, module: str = "", *, count: int = 1) -> None:
        """Add `count` copies of a tensor that no operation creates."""
        storage = self.program.storages[self._index(tensor)]
        storage.bytes *= count
        storage.role, storage.module = role, module

    def stand_for(self, tensor: torch.Tensor) -> None:
        """Add a tensor with size zero that represents tensors whose sizes are already counted."""
        self.program.storages[self._index(tensor)].bytes = 0

    def leave_on_host(self, tensor: torch.Tensor) -> None:
        """Ignore operations on a CPU tensor that would not be on the card."""
        self._on_host[tensor] = True

    def is_on_host(self, tensor: torch.Tensor) -> bool:
        """Return whether operations on a tensor are ignored."""
        return tensor in self._on_host

    def index_of(self, tensor: torch.Tensor) -> int | None:
        """Return the index of a tensor's storage in the program, or None if it was not recorded."""
        found = self._known.get(tensor.untyped_storage()._cdata)
        return None if found is None else found[1]

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        read = [*_of(self._place, args), *_of(self._place, kwargs.values())]
        made = [*_of(self._place, (result,))]
        if self._on_host:
            read = [each for each in read if not self.is_on_host(each)]
            made = [each for each in made if not self.is_on_host(each)]
        if not made and not read:
            return
        program = self.program
        number, known = len(program.operations), len(program.storages)
        reads = tuple([self._operand(tensor) for tensor in read])
        mutates = func._schema.is_mutable
        if mutates:
            made += _written(self._place, func, args, kwargs)
            made = list({id(tensor): tensor for tensor in made}.values())
        writes = tuple([self._operand(tensor) for tensor in made])
        name, phase, node = self._modules.now()
        is_view = bool(made) and not mutates
        for operand in writes:
            if operand.storage >= known:
                is_view = False
                storage = program.storages[operand.storage]
                storage.born, storage.module = number, name
                if self._card is not None and self._card.sums_gradients:
                    storage.continues = reads[0].storage
        if not is_view:
            for operand in (*reads, *writes):
                program.storages[operand.storage].last_used = number
        program.operations.append(
            Operation(
                operator=func,
                reads=reads,
                writes=writes,
                is_view=is_view,
                module=name,
                phase=self.phase or phase,
                arguments=_plain(args),
                times=self.times,
                node=node,
                call=NEVER if self.calls is None else self.calls.number(self._index),
            )
        )

    def _operand(self, tensor: torch.Tensor) -> Operand:
        index = self._index(tensor)
        dtype = tensor.dtype
        in_all = tensor.untyped_storage().nbytes() // dtype.itemsize
        covered = card_bytes(dtype, min(tensor.numel(), in_all))
        return Operand(index, tuple(tensor.shape), dtype, covered)

    def _index(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        address = storage._cdata
        found = self._known.get(address)
        if found is not None and found[0]() is storage:
            return found[1]
        storages = self.program.storages
        index, dtype = len(storages), tensor.dtype
        storages.append(Storage(card_bytes(dtype, storage.nbytes() // dtype.itemsize), dtype=dtype))
        self._known[address] = (weakref.ref(storage, self._gone(address, index)), index)
        return index

    def _gone(self, address: int, index: int) -> Callable[[Any], None]:
        program, known = self.program, self._known

        def note(reference: weakref.ref[Any]) -> None:
            if self._closed:
                return
            program.storages[index].freed = len(program.operations)
            if (found := known.get(address)) is not None and found[0] is reference:
                del known[address]

        return note


def _active_card() -> FakeCard:
    active = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    if not isinstance(active, FakeCard):
        raise RuntimeError("A recorder requires an active tracing.fake_card.fake_card().")
    return active


def _of(place: str, values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            device = value.fake_device if isinstance(value, FakeTensor) else value.device
            if device.type == place:
                yield value
        elif isinstance(value, list | tuple):
            yield from _of(place, value)


def _plain(values: Iterable[Any]) -> tuple[Any, ...]:
    """Replace tensors in the arguments with None, because they must not be kept alive."""
    return tuple(
        [
            None
            if isinstance(each, torch.Tensor)
            else _plain(each)
            if isinstance(each, list | tuple)
            else each
            for each in values
        ]
    )


def _written(
    place: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """Return the arguments that the operator writes to, according to its schema."""
    found: list[torch.Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            by_name = kwargs.get(argument.name)
            value = args[position] if position < len(args) else by_name
            found += _of(place, (value,))
    return found
