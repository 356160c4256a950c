"""Memory of the card over one step, from the lifetimes of what it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hpu_magic.estimate.tracing.program import NEVER, Phase, Program, Role, Storage


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
        of by the end of its part of the step is freed behind its last reader.
    sizes : sequence of int, optional
        Bytes of each storage, where they are not the program's: several cards share what it holds.
    """
    sizes = sizes or [storage.bytes for storage in program.storages]
    length = len(program.operations)
    changes = [0] * (length + 1)
    ends = _ends_of_parts(program)
    for storage, size in zip(program.storages, sizes, strict=True):
        begin = max(storage.born, 0)
        changes[begin] += size
        end = _freed(storage, ends) if recorded else storage.freed
        if end is not None and end <= length:
            changes[max(end, begin)] -= size
    in_use, most = 0, []
    for change in changes[:length]:
        in_use += change
        most.append(in_use)
    return most


def peak(program: Program, *, recorded: bool, sizes: Sequence[int] | None = None) -> Moment:
    """Return the moment of most memory; arguments as those of `curve`."""
    sizes = sizes or [storage.bytes for storage in program.storages]
    line = curve(program, recorded=recorded, sizes=sizes)
    ends = _ends_of_parts(program)
    at = max(range(len(line)), key=line.__getitem__, default=NEVER)
    by_role: Counter[Role] = Counter()
    by_module: Counter[str] = Counter()
    for storage, size in zip(program.storages, sizes, strict=True):
        end = _freed(storage, ends) if recorded else storage.freed
        if storage.born <= at and (end is None or end > at):
            by_role[storage.role] += size
            if storage.role in (Role.ACTIVATIONS, Role.TEMPORARY):
                by_module[storage.module] += size
    return Moment(at, line[at] if line else 0, dict(by_role), dict(by_module))


def _ends_of_parts(program: Program) -> tuple[int, ...]:
    """Return where a lazy step is cut by `mark_step`: behind backward, and behind the optimizer."""
    operations = program.operations
    trained = next(
        (n for n, one in enumerate(operations) if one.phase is Phase.OPTIMIZER), len(operations)
    )
    return (trained, len(operations))


def _freed(storage: Storage, ends: tuple[int, ...]) -> int | None:
    """Return behind which operation a storage is freed where operations are recorded first."""
    if storage.freed is None or storage.born == NEVER:
        return storage.freed
    part = next(end for end in ends if storage.born < end)
    return storage.last_used + 1 if storage.freed <= part else storage.freed
