"""Memory traffic of operations, and how fusion in graphs reduces it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from hpu_magic.estimates.cost.work import Kind, touched
from hpu_magic.estimates.tracing.program import NEVER, Operand, Program


@dataclass(frozen=True, slots=True)
class Traffic:
    """The memory traffic of one operation."""

    moved: tuple[Operand, ...] = ()
    """Operands that are read from or written to memory."""
    spared: tuple[Operand, ...] = ()
    """Operands that stay on the die if the compiler fuses as much as possible."""
    kernels: int = 0
    """Number of kernels whose first operation is this one, over all of its runs."""
    omitted: bool = False
    """Whether the operation is a copy that the compiler omits."""


def traffic(
    program: Program, kinds: Sequence[Kind], graphs: Sequence[int] | None
) -> Iterator[Traffic]:
    """Yield the memory traffic of each operation; `graphs` are the graphs of the operations.

    Without graphs, each operation is a separate kernel that reads its inputs and writes its
    outputs. In graphs, consecutive vector operations form one kernel. The intermediate results of a
    kernel stay on the die, operands that several of its operations use are read only once, and
    results that several of its operations write are written only once. If a result is only copied
    to a tensor that exists, such as a weight, the kernel writes it there.
    """
    if graphs is None:
        for operation, kind in zip(program.operations, kinds, strict=True):
            if kind is Kind.NOTHING:
                yield Traffic()
            else:
                reads, writes = touched(operation, kind)
                operands = _distinct(reads, program) + _distinct(writes, program)
                yield Traffic(operands, kernels=operation.times)
        return
    kernels = _kernels(kinds, graphs)
    copied = dict(_results_in_place(program, kernels))
    uses = _last_kernels(program, kernels) | dict.fromkeys(copied.values(), len(kernels))
    here: set[int] = set()
    written: set[int] = set()  # storages that the kernel has completely written
    running, before = -1, None
    for number, (operation, kind) in enumerate(zip(program.operations, kinds, strict=True)):
        if kind is Kind.NOTHING:
            yield Traffic()
            continue
        if number in copied:
            here.update(operand.storage for operand in operation.writes)
            yield Traffic(omitted=True)
            continue
        kernel = kernels[number]
        kernels_begun = 0
        if kernel != running:
            here.clear()
            written.clear()
            running = kernel
            # Runs of the same operation on other tensors follow immediately, so they share a
            # kernel.
            repeated = before is not None and before.times == operation.times
            kernels_begun = operation.times if repeated or kind is not Kind.VECTOR else 1
        before = operation
        reads, writes = touched(operation, kind)
        moved: list[Operand] = []
        spared: list[Operand] = []
        for operand in _distinct(reads, program):
            (spared if operand.storage in here else moved).append(operand)
        for operand in _distinct(writes, program):
            last = uses.get(operand.storage, kernel)
            stays = last == kernel or operand.storage in written
            (spared if stays else moved).append(operand)
            if operand.bytes >= program.storages[operand.storage].bytes:
                written.add(operand.storage)
        here.update(operand.storage for operand in (*operation.reads, *operation.writes))
        yield Traffic(tuple(moved), tuple(spared), kernels_begun)


def _distinct(operands: tuple[Operand, ...], program: Program) -> tuple[Operand, ...]:
    """Return one operand per storage, with the total bytes of all parts of that storage."""
    found: dict[int, Operand] = {}
    for operand in operands:
        other = found.get(operand.storage)
        if other is not None:
            limit = max(program.storages[operand.storage].bytes, operand.bytes, other.bytes)
            operand = replace(operand, bytes=min(operand.bytes + other.bytes, limit))
        found[operand.storage] = operand
    return tuple(found.values())


def _kernels(kinds: Sequence[Kind], graphs: Sequence[int]) -> list[int]:
    """Return the kernel number of each operation; a view is part of the preceding kernel.

    No kernel contains operations of several graphs.
    """
    numbers, kernel, open_for_more, before = [], -1, False, None
    for kind, graph in zip(kinds, graphs, strict=True):
        if graph != before:
            before, open_for_more = graph, False
        if kind is not Kind.NOTHING:
            if kind is not Kind.VECTOR or not open_for_more:
                kernel += 1
            open_for_more = kind is Kind.VECTOR
        numbers.append(kernel)
    return numbers


def _results_in_place(program: Program, kernels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield copies of results of the same kernel to complete storages, and the result's storage.

    Compiled code updates weights in this way.
    """
    for number, operation in enumerate(program.operations):
        if operation.operator is not torch.ops.aten.copy_.default or operation.times != 1:
            continue
        if not operation.writes:
            continue
        target, result = operation.writes[0], operation.reads[-1]
        own, other = program.storages[result.storage], program.storages[target.storage]
        is_result = own.born != NEVER and kernels[own.born] == kernels[number]
        is_whole = target.bytes == other.bytes == own.bytes and target.dtype == result.dtype
        if is_result and is_whole and own.last_used == number and other.born == NEVER:
            yield number, result.storage


def _last_kernels(program: Program, kernels: Sequence[int]) -> dict[int, int]:
    """Return the number of the last kernel that uses each storage.

    If a storage outlives the program, its number is larger than the number of any kernel. A storage
    that is not read after its creation is a result, and a storage that exists before the first
    operation is kept for the next step; both outlive the program.
    """
    beyond = len(kernels)
    return {
        number: beyond
        if storage.freed is None or storage.born in (storage.last_used, NEVER)
        else kernels[storage.last_used]
        for number, storage in enumerate(program.storages)
        if storage.last_used >= 0
    }
