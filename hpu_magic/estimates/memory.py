"""Memory of the card over one step, from the lifetimes of what it makes."""

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
    """The moment of a step at which most memory is in use."""

    operation: int
    bytes: int
    by_role: dict[Role, int]
    by_module: dict[str, int]
    """Bytes of activations and temporaries, by the module that makes them."""


def curve(program: Program, *, recorded: bool, sizes: Sequence[int] | None = None) -> list[int]:
    """Return the bytes in use while each operation runs.

    Parameters
    ----------
    program : Program
        The step.
    recorded : bool
        Whether operations run later than Python calls them, as in lazy mode: what Python has let go
        of by then is freed behind its last reader. There, int64 takes half its size.
    sizes : sequence of int, optional
        Bytes of each storage, where they are not the program's: several cards share what it holds.
    """
    changes = [0] * (len(program.operations) + 1)
    for storage, size, end in _in_use(program, recorded, sizes):
        begin = max(storage.born, 0)
        changes[begin] += size
        if end is not None and end < len(changes):
            changes[max(end, begin)] -= size
    return list(accumulate(changes[:-1]))


def peak(program: Program, *, recorded: bool, sizes: Sequence[int] | None = None) -> Moment:
    """Return the moment of most memory; arguments as those of `curve`."""
    line = curve(program, recorded=recorded, sizes=sizes)
    at = max(range(len(line)), key=line.__getitem__, default=NEVER)
    by_role: Counter[Role] = Counter()
    by_module: Counter[str] = Counter()
    for storage, size, end in _in_use(program, recorded, sizes):
        if storage.born <= at and (end is None or end > at):
            by_role[storage.role] += size
            if storage.role in (Role.ACTIVATIONS, Role.TEMPORARY):
                by_module[storage.module] += size
    return Moment(at, line[at] if line else 0, dict(by_role), dict(by_module))


def _in_use(
    program: Program, recorded: bool, sizes: Sequence[int] | None
) -> Iterator[tuple[Storage, int, int | None]]:
    """Yield each storage with its bytes and the operation before which it is freed."""
    number_of_bytes = [one.bytes for one in program.storages] if sizes is None else sizes
    run = _recorded_first if recorded else _run_at_once
    yield from run(program, number_of_bytes)


def _run_at_once(
    program: Program, sizes: Sequence[int]
) -> Iterator[tuple[Storage, int, int | None]]:
    ends = [one.freed for one in program.storages]
    taken_over = [one.continues for one in program.storages]
    for number, before in reversed(list(enumerate(taken_over))):
        if before is not None:
            ends[before] = ends[number]
    for number, storage in enumerate(program.storages):
        yield storage, sizes[number] if taken_over[number] is None else 0, ends[number]


def _recorded_first(
    program: Program, sizes: Sequence[int]
) -> Iterator[tuple[Storage, int, int | None]]:
    starts = _starts_of_parts(program)
    for storage, given in zip(program.storages, sizes, strict=True):
        size = given // 2 if storage.dtype is torch.int64 else given
        if storage.freed is None or storage.born == NEVER:
            yield storage, size, storage.freed
            continue
        # Of what Python let go of while a part was recorded, nothing had run yet.
        start = starts[bisect_left(starts, storage.freed) - 1] if storage.freed else 0
        yield storage, size, max(storage.last_used + 1, start)


def _starts_of_parts(program: Program) -> list[int]:
    """Return where what has been recorded runs before more is.

    At `mark_step` behind backward, and where the host waits for a number or a shape.
    """
    starts = [0]
    for number, one in enumerate(program.operations):
        if one.phase is Phase.OPTIMIZER and program.operations[number - 1].phase is not one.phase:
            starts.append(number)
        if (one.reads and not one.writes) or _shape_is_of_numbers(one):
            starts.append(number + 1)
    return starts


def _shape_is_of_numbers(operation: Operation) -> bool:
    """Tell whether the host waits for the shape of what an operation gives."""
    if operation.operator is torch.ops.aten.index.Tensor:  # places tell it, a mask does not
        return any(one.dtype in (torch.bool, torch.uint8) for one in operation.reads[1:])
    return torch.Tag.dynamic_output_shape in operation.operator.tags
