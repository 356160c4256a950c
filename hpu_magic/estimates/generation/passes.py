"""Trace a language model's passes over a prompt and over a single new token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from hpu_magic.estimates.generation.protocol import Protocol, call, tensors_of
from hpu_magic.estimates.tracing import twins
from hpu_magic.estimates.tracing.fake_card import device_type, fake_card
from hpu_magic.estimates.tracing.modules import RunningModules
from hpu_magic.estimates.tracing.program import NEVER, Operand, Operation, Program, Role
from hpu_magic.estimates.tracing.recorder import Recorder
from hpu_magic.estimates.tracing.refusals import explained
from hpu_magic.estimates.tracing.routing import count_choices

_COPY = torch.ops.aten.copy_.default
_JOIN = torch.ops.aten.cat.default


@dataclass(frozen=True)
class Pass:
    """One call to the model, followed by the selection of the token with the largest logit."""

    program: Program
    before: frozenset[int]
    """Storages that belong to the cache before the pass."""
    after: frozenset[int]
    """Storages that belong to the cache after the pass."""

    def heads(self) -> dict[int, int]:
        """Return the number of heads in each storage of the cache.

        Keys and values have the shape batch x heads x positions x width. Any other cached state is
        also sharded along its second dimension.
        """
        cache = self.before | self.after
        return {
            operand.storage: operand.shape[1]
            for each in self.program.operations
            for operand in each.reads
            if operand.storage in cache and len(operand.shape) > 2
        }


class Passes:
    """Traces each pass of a model as a separate program."""

    def __init__(self, model: nn.Module, protocol: Protocol, tensors: twins.Twins) -> None:
        self._model, self._protocol, self._tensors = model, protocol, tensors

    def prompt(self, batch: int, tokens: int) -> Pass:
        """Trace the pass over prompts of ``tokens`` tokens each."""
        return self._traced(batch, tokens, None)

    def token(self, batch: int, position: int) -> Pass:
        """Trace the pass over one new token when the cache already holds `position` tokens."""
        _, cache = self._run(_tokens(batch, position), None)
        return self._traced(batch, 1, cache)

    def _run(self, tokens: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        return call(self._model, self._protocol, tokens, cache)

    def _traced(self, batch: int, tokens: int, cache: Any) -> Pass:
        model = self._model
        program = Program(
            classes={name: type(module).__name__ for name, module in model.named_modules()},
            samples=batch,
            tokens=batch * tokens,
        )
        modules = RunningModules(model)
        recorder = Recorder(program, modules)
        inputs = _tokens(batch, tokens)
        self._hold(recorder, inputs)
        before = set()
        for tensor in tensors_of(cache):
            recorder.hold(tensor, Role.CACHE)
            before.add(_index_of(recorder, tensor))
        with modules, recorder:
            logits, cache_after = self._run(inputs, cache)
            # Like `generate`, convert the last position's logits to float32 and select a token.
            last = logits[:, -1, :].to(copy=True, dtype=torch.float32)
            chosen = last.argmax(dim=-1)
        for tensor in (logits, last):
            program.storages[_index_of(recorder, tensor)].role = Role.LOGITS
        after = {_index_of(recorder, tensor) for tensor in tensors_of(cache_after)}
        for index in after:
            program.storages[index].role = Role.CACHE
        del logits, last, chosen
        recorder.close()  # the cache is kept for the next pass
        count_choices(program)
        return Pass(program, frozenset(before), frozenset(after))

    def _hold(self, recorder: Recorder, inputs: torch.Tensor) -> None:
        for name, weight in self._tensors.parameters.items():
            recorder.hold(weight, Role.WEIGHTS, name.rpartition(".")[0])
        for name, buffer in self._tensors.buffers.items():
            recorder.hold(buffer, Role.BUFFERS, name.rpartition(".")[0])
        recorder.hold(inputs, Role.INPUTS)


@contextmanager
def passes_of(model: nn.Module, protocol: Protocol, dtype: torch.dtype) -> Iterator[Passes]:
    """Yield an object that traces passes of a model; the model is not changed.

    Raises `EstimateError` if operations depend on tensor values, or if an operator cannot infer
    shapes without values.
    """
    with (
        explained(),
        fake_card(),
        torch.no_grad(),
        twins.fake_tensors(model, dtype, training=False) as tensors,
    ):
        yield Passes(model, protocol, tensors)


def preallocated(traced: Pass) -> Pass:
    """Return the pass with a cache that is allocated for all tokens before the first pass.

    If the model concatenates the cache and new values, the returned pass writes only the new
    values. During the entire pass, the cache has its final size.
    """
    program = traced.program
    operations = [_written_in_place(each, traced) for each in program.operations]
    storages = [replace(each) for each in program.storages]
    for index in traced.before - traced.after:
        storages[index].bytes = 0
    for index in traced.after:
        storages[index].born, storages[index].freed = NEVER, None
    return replace(traced, program=replace(program, operations=operations, storages=storages))


def _written_in_place(operation: Operation, traced: Pass) -> Operation:
    joins = operation.operator is _JOIN and operation.writes[0].storage in traced.after
    new = [each for each in operation.reads if each.storage not in traced.before and each.bytes]
    if not joins or len(new) != 1:
        return operation
    written = replace(new[0], storage=operation.writes[0].storage)
    return replace(operation, operator=_COPY, reads=(new[0],), writes=(written,), arguments=())


def with_cache_in(traced: Pass, dtype: torch.dtype) -> Pass:
    """Return the pass with its cache converted to a different dtype."""
    cache = traced.before | traced.after
    program = traced.program
    storages = [replace(each) for each in program.storages]
    for index, itemsize in _item_sizes(program, cache).items():
        storages[index].bytes = storages[index].bytes * dtype.itemsize // itemsize

    def converted(operand: Operand) -> Operand:
        if operand.storage not in cache:
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
    return replace(traced, program=replace(program, operations=operations, storages=storages))


def _item_sizes(program: Program, cache: frozenset[int]) -> dict[int, int]:
    return {
        operand.storage: operand.dtype.itemsize
        for each in program.operations
        for operand in (*each.reads, *each.writes)
        if operand.storage in cache
    }


def _tokens(batch: int, positions: int) -> torch.Tensor:
    return torch.empty(batch, positions, dtype=torch.int64, device=device_type())


def _index_of(recorder: Recorder, tensor: torch.Tensor) -> int:
    index = recorder.index_of(tensor)
    assert index is not None  # the recorder holds the tensor, or an operation created it
    return index
