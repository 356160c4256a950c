"""Passes of a language model as programs: over a prompt, and over one more token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from hpu_magic.estimates.generation.protocol import Protocol, call, tensors_of
from hpu_magic.estimates.tracing import twins
from hpu_magic.estimates.tracing.fake_card import fake_card
from hpu_magic.estimates.tracing.modules import RunningModules
from hpu_magic.estimates.tracing.place import device_type
from hpu_magic.estimates.tracing.program import NEVER, Operand, Operation, Program, Role
from hpu_magic.estimates.tracing.recorder import Recorder
from hpu_magic.estimates.tracing.refusals import explained

_COPY = torch.ops.aten.copy_.default
_JOIN = torch.ops.aten.cat.default


@dataclass(frozen=True)
class Pass:
    """One call of the model, and the choice of a token by the largest logit."""

    program: Program
    before: frozenset[int]
    """Storages of the cache that the pass is given."""
    after: frozenset[int]
    """Storages of the cache that it leaves."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of the cache that it leaves."""
        return sum(self.program.storages[one].bytes for one in self.after)

    def heads(self) -> dict[int, int]:
        """Return of the storages of the cache how many heads each is kept by.

        Keys and values are batch x heads x positions x width; other states are divided by their
        second dimension as well.
        """
        kept = self.before | self.after
        return {
            operand.storage: operand.shape[1]
            for each in self.program.operations
            for operand in each.reads
            if operand.storage in kept and len(operand.shape) > 2
        }


class Passes:
    """Traces passes of one model; each has its own program."""

    def __init__(self, model: nn.Module, protocol: Protocol, tensors: twins.Twins) -> None:
        self._model, self._protocol, self._tensors = model, protocol, tensors

    def prompt(self, batch: int, tokens: int) -> Pass:
        """Return the pass over prompts of so many tokens."""
        return self._traced(batch, tokens, None)

    def token(self, batch: int, position: int) -> Pass:
        """Return the pass over one more token behind `position` others, which are in the cache."""
        _, cache = self._run(_tokens(batch, position), None)
        return self._traced(batch, 1, cache)

    def _run(self, tokens: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        return call(self._model, self._protocol, tokens, cache)

    def _traced(self, batch: int, tokens: int, cache: Any) -> Pass:
        model = self._model
        program = Program(
            classes={name: type(one).__name__ for name, one in model.named_modules()},
            samples=batch,
            tokens=batch * tokens,
        )
        modules = RunningModules(model)
        recorder = Recorder(program, modules)
        given = _tokens(batch, tokens)
        self._hold(recorder, given)
        before = set()
        for one in tensors_of(cache):
            recorder.hold(one, Role.CACHE)
            before.add(_known(recorder, one))
        with modules, recorder:
            logits, after = self._run(given, cache)
            # As `generate` does: the last position's logits in float32, of which one is chosen.
            last = logits[:, -1, :].to(copy=True, dtype=torch.float32)
            chosen = last.argmax(dim=-1)
        for one in (logits, last):
            program.storages[_known(recorder, one)].role = Role.LOGITS
        left = {_known(recorder, one) for one in tensors_of(after)}
        for index in left:
            program.storages[index].role = Role.CACHE
        del logits, last, chosen
        recorder.close()  # the cache stays for the next pass
        return Pass(program, frozenset(before), frozenset(left))

    def _hold(self, recorder: Recorder, given: torch.Tensor) -> None:
        for name, one in self._tensors.parameters.items():
            recorder.hold(one, Role.WEIGHTS, name.rpartition(".")[0])
        for name, buffer in self._tensors.buffers.items():
            recorder.hold(buffer, Role.BUFFERS, name.rpartition(".")[0])
        recorder.hold(given, Role.INPUTS)


@contextmanager
def passes_of(model: nn.Module, protocol: Protocol, dtype: torch.dtype) -> Iterator[Passes]:
    """Trace passes of a model meanwhile; it is left as it was.

    Raises
    ------
    EstimateError
        What runs depends on numbers, or on an operator that tells no shapes without them.
    """
    with (
        explained(),
        fake_card(),
        torch.no_grad(),
        twins.fake_tensors(model, dtype, training=False) as tensors,
    ):
        yield Passes(model, protocol, tensors)


def preallocated(one: Pass) -> Pass:
    """Return a pass whose cache lies there for all tokens from the first on.

    Where the model joins what the cache holds with what is new, only the new part is written; the
    memory is that of the cache which the pass leaves.
    """
    program = one.program
    operations = [_written_in_place(each, one) for each in program.operations]
    storages = [replace(each) for each in program.storages]
    for index in one.before - one.after:
        storages[index].bytes = 0
    for index in one.after:
        storages[index].born, storages[index].freed = NEVER, None
    return replace(one, program=replace(program, operations=operations, storages=storages))


def _written_in_place(operation: Operation, one: Pass) -> Operation:
    joins = operation.operator is _JOIN and operation.writes[0].storage in one.after
    new = [each for each in operation.reads if each.storage not in one.before and each.bytes]
    if not joins or len(new) != 1:
        return operation
    written = replace(new[0], storage=operation.writes[0].storage)
    return replace(operation, operator=_COPY, reads=(new[0],), writes=(written,), arguments=())


def with_cache_in(one: Pass, dtype: torch.dtype) -> Pass:
    """Return a pass whose cache holds numbers of another type."""
    kept = one.before | one.after
    program = one.program
    storages = [replace(each) for each in program.storages]
    for index, itemsize in _item_sizes(program, kept).items():
        storages[index].bytes = storages[index].bytes * dtype.itemsize // itemsize

    def converted(operand: Operand) -> Operand:
        if operand.storage not in kept:
            return operand
        count = operand.bytes * dtype.itemsize // operand.dtype.itemsize
        return replace(operand, dtype=dtype, bytes=count)

    operations = [
        replace(
            each,
            reads=tuple(converted(operand) for operand in each.reads),
            writes=tuple(converted(operand) for operand in each.writes),
        )
        for each in program.operations
    ]
    return replace(one, program=replace(program, operations=operations, storages=storages))


def _item_sizes(program: Program, kept: frozenset[int]) -> dict[int, int]:
    return {
        operand.storage: operand.dtype.itemsize
        for each in program.operations
        for operand in (*each.reads, *each.writes)
        if operand.storage in kept
    }


def _tokens(batch: int, positions: int) -> torch.Tensor:
    return torch.empty(batch, positions, dtype=torch.int64, device=device_type())


def _known(recorder: Recorder, tensor: torch.Tensor) -> int:
    index = recorder.index_of(tensor)
    assert index is not None  # it has been held, or made by an operation
    return index
