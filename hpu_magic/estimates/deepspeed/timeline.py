"""Memory that is allocated and freed between the traced operations of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hpu_magic.estimates.memory import Memory, Moment, in_use
from hpu_magic.estimates.tracing.program import Program, Role

START = -1
"""The time before the first operation."""


def before(operation: int) -> int:
    """Return the time just before an operation."""
    return 2 * operation


def after(operation: int) -> int:
    """Return the time just after an operation."""
    return 2 * operation + 1


@dataclass
class Timeline:
    """Allocations and releases; those at the same time keep their order."""

    events: list[tuple[int, int, Role]] = field(default_factory=list)
    """The time, the change in bytes, and the role of each event."""

    def allocate(self, time: int, size: int, role: Role) -> None:
        """Add an allocation of ``size`` bytes."""
        self.events.append((time, size, role))

    def free(self, time: int, size: int, role: Role) -> None:
        """Add the release of ``size`` bytes."""
        self.events.append((time, -size, role))

    def borrow(self, time: int, size: int, role: Role) -> None:
        """Add an allocation that is released immediately."""
        self.allocate(time, size, role)
        self.free(time, size, role)


@dataclass(frozen=True)
class _Point:
    """An operation or the gap before it, and the memory that is allocated at that time."""

    operation: int
    in_gap: bool
    bytes: int
    added: dict[Role, int]


def memory(
    program: Program, timeline: Timeline, length: int, *, recorded: bool, sizes: Sequence[int]
) -> Memory:
    """Return the memory usage of a program with the additional allocations of a timeline.

    The curve has ``length`` values. Each value after the program's last operation is the peak of
    the allocations at that time. ``recorded`` and ``sizes`` have the same meaning as in
    `hpu_magic.estimates.memory.curve`.
    """
    count = len(program.operations)
    line = [0] * (count + 1)
    highest = _Point(0, True, 0, {})
    for point in _points(program, timeline, recorded, sizes):
        line[point.operation] = max(line[point.operation], point.bytes)
        if point.bytes > highest.bytes:
            highest = point
    by_role, by_module = Counter(highest.added), Counter[str]()
    for storage, size, end in in_use(program, recorded, sizes):
        if _exists(storage.born, end, highest):
            by_role[storage.role] += size
            if storage.role in (Role.ACTIVATIONS, Role.TEMPORARY):
                by_module[storage.module] += size
    exchanged = by_role.pop(Role.EXCHANGED, 0)
    inside = highest.bytes - exchanged
    moment = Moment(highest.operation, inside, dict(by_role), dict(by_module))
    curve = [*line[:count], *line[count:] * (length - count)]
    return Memory(curve, moment, exchanged)


def _points(
    program: Program, timeline: Timeline, recorded: bool, sizes: Sequence[int]
) -> Iterator[_Point]:
    during, gaps = _existing(program, recorded, sizes)
    events = sorted(timeline.events, key=lambda event: event[0])
    added: Counter[Role] = Counter()
    total = position = 0

    def until(time: int, operation: int) -> Iterator[_Point]:
        nonlocal total, position
        while position < len(events) and events[position][0] <= time:
            _, change, role = events[position]
            added[role] += change
            total += change
            position += 1
            yield _Point(operation, True, gaps[operation] + total, dict(added))

    for number, size in enumerate(during):
        yield from until(before(number), number)
        yield _Point(number, False, size + total, dict(added))
        yield from until(after(number), number + 1)
    yield from until(before(len(during)), len(during))


def _existing(
    program: Program, recorded: bool, sizes: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the size of the program's storages during each operation, and in each gap."""
    count = len(program.operations)
    during, gaps = [0] * (count + 1), [0] * (count + 2)
    for storage, size, end in in_use(program, recorded, sizes):
        born = max(storage.born, 0)
        first = storage.born + 1
        if born > count:
            continue
        during[born] += size
        gaps[first] += size
        if end is not None and end <= count:
            during[max(end, born)] -= size
            gaps[max(end, first)] -= size
    for values in (during, gaps):
        for number in range(1, len(values)):
            values[number] += values[number - 1]
    return during[:count], gaps[: count + 1]


def _exists(born: int, end: int | None, point: _Point) -> bool:
    begun = born < point.operation if point.in_gap else born <= point.operation
    return begun and (end is None or end > point.operation)
