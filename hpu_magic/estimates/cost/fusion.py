"""What of operations' operands passes through memory: in graphs, less than they read and write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hpu_magic.estimates.cost.work import Kind, touched
from hpu_magic.estimates.tracing.program import NEVER, Operand, Program


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one operation moves."""

    moved: tuple[Operand, ...] = ()
    """Operands that memory gives or takes."""
    spared: tuple[Operand, ...] = ()
    """Operands that stay on the die, where the compiler fuses all that it may."""
    begins: bool = False
    """Whether a kernel begins with it."""


def traffic(program: Program, kinds: Sequence[Kind], *, fused: bool) -> Iterator[Traffic]:
    """Yield what each operation moves.

    Without fusion each operation is a kernel, which reads all that it is given and writes all that
    it makes. In graphs, vector operations that follow each other are one kernel: what they hand on
    among themselves stays on the die, and what several of them read is read once.

    Parameters
    ----------
    program : Program
        The step.
    kinds : sequence of Kind
        Of its operations.
    fused : bool
        Whether they run as graphs.
    """
    if not fused:
        for operation, kind in zip(program.operations, kinds, strict=True):
            if kind is Kind.NOTHING:
                yield Traffic()
            else:
                reads, writes = touched(operation, kind)
                yield Traffic(_distinct(reads, program) + _distinct(writes, program), begins=True)
        return
    kernels = _kernels(kinds)
    uses = _last_kernels(program, kernels)
    here: set[int] = set()
    running = -1
    for number, (operation, kind) in enumerate(zip(program.operations, kinds, strict=True)):
        if kind is Kind.NOTHING:
            yield Traffic()
            continue
        kernel = kernels[number]
        begins = kernel != running
        if begins:
            here.clear()
            running = kernel
        reads, writes = touched(operation, kind)
        moved: list[Operand] = []
        spared: list[Operand] = []
        for one in _distinct(reads, program):
            (spared if one.storage in here else moved).append(one)
        for one in _distinct(writes, program):
            (spared if uses.get(one.storage, kernel) == kernel else moved).append(one)
        here.update(one.storage for one in (*operation.reads, *operation.writes))
        yield Traffic(tuple(moved), tuple(spared), begins)


def _distinct(operands: tuple[Operand, ...], program: Program) -> tuple[Operand, ...]:
    """Return one operand for each storage, with the bytes of all its parts that are given."""
    found: dict[int, Operand] = {}
    for one in operands:
        other = found.get(one.storage)
        if other is not None:
            whole = max(program.storages[one.storage].bytes, one.bytes, other.bytes)
            one = replace(one, bytes=min(one.bytes + other.bytes, whole))
        found[one.storage] = one
    return tuple(found.values())


def _kernels(kinds: Sequence[Kind]) -> list[int]:
    """Return the number of the kernel that each operation runs in; views have those before them."""
    numbers, kernel, open_for_more = [], -1, False
    for kind in kinds:
        if kind is not Kind.NOTHING:
            if kind is not Kind.VECTOR or not open_for_more:
                kernel += 1
            open_for_more = kind is Kind.VECTOR
        numbers.append(kernel)
    return numbers


def _last_kernels(program: Program, kernels: Sequence[int]) -> dict[int, int]:
    """Return, for each storage, the last kernel that works with it; beyond all if it is left.

    What no operation reads behind the one that makes it is a result; what was there before the
    first one is there for the next step.
    """
    beyond = len(kernels)
    return {
        number: beyond
        if storage.freed is None or storage.born in (storage.last_used, NEVER)
        else kernels[storage.last_used]
        for number, storage in enumerate(program.storages)
        if storage.last_used >= 0
    }
