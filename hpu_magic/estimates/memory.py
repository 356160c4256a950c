"""Calculate a card's memory usage over one step from the lifetimes of its storages."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from hpu_magic.estimates.tracing.program import NEVER, Operation, Phase, Program, Role, Storage


@dataclass(frozen=True)
class Moment:
    """The moment during a step at which memory usage peaks."""

    operation: int
    bytes: int
    by_role: dict[Role, int]
    by_module: dict[str, int]
    """Size in bytes of the activations and temporary tensors that each module creates."""


@dataclass(frozen=True)
class Memory:
    """A card's memory usage over one step."""

    curve: Sequence[int]
    """The number of bytes in use during each operation."""
    moment: Moment
    exchanged: int
    """Size in bytes of the buffers for exchanging gradients and weights at the peak."""

    @property
    def peak(self) -> int:
        """Peak memory usage in bytes."""
        return self.moment.bytes + self.exchanged


def curve(program: Program, *, recorded: bool, sizes: Sequence[int] | None = None) -> list[int]:
    """Return the number of bytes in use while each operation runs.

    If ``recorded`` is true, operations are first recorded and run later, as in lazy mode. In lazy
    mode, a storage is freed after its last use, even if Python released it earlier, and int64
    values take up half the space. ``sizes`` contains the size in bytes of each storage on one card;
    by default, the sizes in the program are used.
    """
    changes = [0] * (len(program.operations) + 1)
    for storage, size, end in in_use(program, recorded, sizes):
        begin = max(storage.born, 0)
        changes[begin] += size
        if end is not None and end < len(changes):
            changes[max(end, begin)] -= size
    return list(accumulate(changes[:-1]))


def peak(program: Program, *, recorded: bool, sizes: Sequence[int] | None = None) -> Moment:
    """Return the peak memory usage; takes the same arguments as `curve`."""
    line = curve(program, recorded=recorded, sizes=sizes)
    at = max(range(len(line)), key=line.__getitem__, default=NEVER)
    by_role: Counter[Role] = Counter()
    by_module: Counter[str] = Counter()
    for storage, size, end in in_use(program, recorded, sizes):
        if storage.born <= at and (end is None or end > at):
            by_role[storage.role] += size
            if storage.role in (Role.ACTIVATIONS, Role.TEMPORARY):
                by_module[storage.module] += size
    return Moment(at, line[at] if line else 0, dict(by_role), dict(by_module))


def in_use(
    program: Program, recorded: bool, sizes: Sequence[int] | None
) -> Iterator[tuple[Storage, int, int | None]]:
    """Yield each storage, its size in bytes, and the operation before which it is freed."""
    number_of_bytes = [each.bytes for each in program.storages] if sizes is None else sizes
    run = _recorded_first if recorded else _run_at_once
    yield from run(program, number_of_bytes)


def _run_at_once(
    program: Program, sizes: Sequence[int]
) -> Iterator[tuple[Storage, int, int | None]]:
    ends = [storage.freed for storage in program.storages]
    continued = [storage.continues for storage in program.storages]
    for number, before in reversed(list(enumerate(continued))):
        if before is not None:
            ends[before] = ends[number]
    for number, storage in enumerate(program.storages):
        yield storage, sizes[number] if continued[number] is None else 0, ends[number]


def _recorded_first(
    program: Program, sizes: Sequence[int]
) -> Iterator[tuple[Storage, int, int | None]]:
    starts = _starts_of_parts(program)
    for storage, number_of_bytes in zip(program.storages, sizes, strict=True):
        size = number_of_bytes // 2 if storage.dtype is torch.int64 else number_of_bytes
        if storage.freed is None or storage.born == NEVER:
            yield storage, size, storage.freed
            continue
        # If Python releases a storage while a part of the step is being recorded, the storage
        # exists until that part runs.
        start = starts[bisect_left(starts, storage.freed) - 1] if storage.freed else 0
        yield storage, size, max(storage.last_used + 1, start)


def _starts_of_parts(program: Program) -> list[int]:
    """Return the indices of the operations before which all recorded operations are run.

    Recorded operations run at `mark_step` after the backward pass, and when the host needs a value
    or shape.
    """
    starts = [0]
    for number, operation in enumerate(program.operations):
        first = program.operations[number - 1].phase is not operation.phase
        if operation.phase is Phase.OPTIMIZER and first:
            starts.append(number)
        if (operation.reads and not operation.writes) or _shape_depends_on_values(operation):
            starts.append(number + 1)
    return starts


def _shape_depends_on_values(operation: Operation) -> bool:
    """Return whether the host must wait for an operation to determine the shape of its output."""
    if (
        operation.operator is torch.ops.aten.index.Tensor
    ):  # the shape depends on the values of masks, but not on those of indices
        return any(each.dtype in (torch.bool, torch.uint8) for each in operation.reads[1:])
    return torch.Tag.dynamic_output_shape in operation.operator.tags
