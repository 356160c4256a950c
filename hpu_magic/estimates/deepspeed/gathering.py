"""Gather and release weights in ZeRO stage 3, like `PartitionedParameterCoordinator`."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hpu_magic.estimates.deepspeed.configuration import Configuration
from hpu_magic.estimates.deepspeed.step import padded
from hpu_magic.estimates.deepspeed.timeline import START, Timeline, after, before
from hpu_magic.estimates.tracing.program import Operation, Phase, Program, Role


@dataclass
class Visit:
    """A forward or backward pass of a module."""

    module: str
    begin: int
    """Index of the first operation."""
    end: int = 0
    """Index of the last operation."""


@dataclass
class _Gathered:
    """Weights that are gathered together."""

    waiting: set[int]
    """Weights that no module has used yet."""
    flat: int
    """Size in bytes of the buffer that is freed when all weights have been used."""
    complete: bool = False
    parts: dict[int, int] = field(default_factory=dict)
    """Size in bytes of each weight after it is copied from the buffer."""


def visits(operations: Sequence[Operation]) -> list[tuple[bool, Visit]]:
    """Return the start (true) and end (false) of each module's passes, in chronological order."""
    found: list[tuple[bool, Visit]] = []
    active: list[Visit] = []
    phase: Phase | None = None
    for number, operation in enumerate(operations):
        if operation.phase is Phase.OPTIMIZER:
            break
        path = list(_path(operation.module))
        changed = phase is not operation.phase
        while active and (changed or active[-1].module not in path):
            found.append((False, active.pop()))
        for module in path[len(active) :]:
            active.append(Visit(module, number))
            found.append((True, active[-1]))
        for each in active:
            each.end = number
        phase = operation.phase
    found += [(False, each) for each in reversed(active)]
    return found


def _path(module: str) -> Iterator[str]:
    """Yield the model and the modules along a path."""
    yield ""
    names = module.split(".") if module else []
    for count in range(1, len(names) + 1):
        yield ".".join(names[:count])


def gathers(program: Program, configuration: Configuration, cards: int) -> float:
    """Return the bytes that a step gathers, as a multiple of the size of the weights."""
    coordinator = Coordinator(program, configuration, cards, Timeline())
    coordinator.run()
    storages = (program.storages[each] for each in coordinator.parameters)
    return coordinator.gathered / max(sum(each.bytes for each in storages), 1)


class Coordinator:
    """Gathers and releases weights in a step whose order of modules has been recorded."""

    def __init__(
        self, program: Program, configuration: Configuration, cards: int, timeline: Timeline
    ) -> None:
        self.program, self.cards = program, cards
        self.options, self.timeline = configuration, timeline
        self.gathered = 0
        """Size in bytes of all weights that were gathered."""
        self.parameters = {each.weight: each for each in program.parameters}
        self.persistent = self._persistent()
        self.available = set(self.persistent)
        self.flying: dict[int, _Gathered] = {}
        self.sizes: dict[int, int] = {}
        self.live = 0
        self.events = visits(program.operations)
        self.order = [visit for begins, visit in self.events if begins]
        self.of_module = self._of_modules()
        self.queue = deque(
            (weight, step)
            for step, visit in enumerate(self.order)
            for weight in self.of_module[visit.module]
        )
        self.fetched_for = defaultdict[int, int](lambda: -1)

    def _of_modules(self) -> defaultdict[str, list[int]]:
        """Return the weights of each module, and the weights of other modules that it uses."""
        found = defaultdict[str, list[int]](list)
        for each in self.program.parameters:
            found[each.name.rpartition(".")[0]].append(each.weight)
        for operation in self.program.operations:
            if operation.phase is Phase.OPTIMIZER:
                break
            for operand in operation.reads:
                weights = found[operation.module]
                if operand.storage in self.parameters and operand.storage not in weights:
                    weights.append(operand.storage)
        return found

    def _persistent(self) -> set[int]:
        """Return the small weights that each rank keeps between steps."""
        found, total = set[int](), 0
        for each in self.parameters.values():
            if each.elements + total > self.options.model_persistence_threshold:
                continue
            if each.elements <= self.options.param_persistence_threshold:
                found.add(each.weight)
                total += each.elements
        return found

    def item(self, weight: int) -> int:
        """Return the size in bytes of an element of a weight."""
        return self.program.storages[weight].bytes // max(self.parameters[weight].elements, 1)

    def partition(self, weight: int) -> int:
        """Return the size in bytes of a rank's partition of a weight."""
        elements = padded(self.parameters[weight].elements, self.cards)
        return elements // self.cards * self.item(weight)

    def run(self) -> None:
        """Record the weights during a step; the optimizer needs only the partitions."""
        for weight in self.persistent:
            self.sizes[weight] = self.partition(weight) * self.cards
            self.timeline.allocate(START, self.sizes[weight], Role.WEIGHTS)
        steps = 0
        for begins, visit in self.events:
            if begins:
                self._fetch(visit, steps)
                steps += 1
            else:
                self._release(visit, steps)
        end = before(sum(each.phase is not Phase.OPTIMIZER for each in self.program.operations))
        for weight in sorted(self.available):
            self.timeline.free(end, self.sizes.pop(weight), Role.WEIGHTS)
        for gathered in {id(each): each for each in self.flying.values()}.values():
            self.timeline.free(end, gathered.flat, Role.WEIGHTS)

    def _fetch(self, visit: Visit, step: int) -> None:
        time, needed = before(visit.begin), self.of_module[visit.module]
        self._gather([each for each in needed if self._missing(each)], time)
        for weight in needed:
            self._wait(weight, time)
        outdated = {each for each in needed if self.fetched_for[each] < step}
        for _ in range(len(outdated)):
            if not self.queue:
                break
            weight, last = self.queue.popleft()
            self.fetched_for[weight] = last
        self._prefetch(time)

    def _prefetch(self, time: int) -> None:
        most = min(self.options.max_live_parameters - self.live, self.options.prefetch_bucket_size)
        chosen: list[int] = []
        while self.queue and sum(self.parameters[each].elements for each in chosen) < most:
            weight, last = self.queue.popleft()
            self.fetched_for[weight] = max(self.fetched_for[weight], last)
            if self._missing(weight) and weight not in chosen:
                chosen.append(weight)
        self._gather(chosen, time)

    def _missing(self, weight: int) -> bool:
        return weight not in self.available and weight not in self.flying

    def _gather(self, weights: Sequence[int], time: int) -> None:
        if not weights:
            return
        self.live += sum(self.parameters[each].elements for each in weights)
        flat = sum(self.partition(each) * self.cards for each in weights)
        self.gathered += flat
        gathered = _Gathered(set(weights), flat)
        self.timeline.allocate(time, flat, Role.WEIGHTS)
        if self.options.offload_param:
            self.timeline.borrow(time, flat // self.cards, Role.WEIGHTS)
        for weight in weights:
            self.flying[weight] = gathered
            gathered.parts[weight] = self.parameters[weight].elements * self.item(weight)

    def _wait(self, weight: int, time: int) -> None:
        """Finish gathering a weight; if it was gathered alone, it is not copied from the buffer."""
        gathered = self.flying.pop(weight, None)
        if gathered is None:
            return
        single = len(gathered.parts) == 1
        if not gathered.complete:
            gathered.complete = True
            for each, size in gathered.parts.items():
                self.available.add(each)
                self.sizes[each] = gathered.flat if single else size
                if not single:
                    self.timeline.allocate(time, size, Role.WEIGHTS)
        gathered.waiting.discard(weight)
        if not gathered.waiting and not single:
            self.timeline.free(time, gathered.flat, Role.WEIGHTS)

    def _release(self, visit: Visit, step: int) -> None:
        released = {each for each in self.of_module[visit.module] if each not in self.persistent}
        released = {each for each in released if self.fetched_for[each] <= step}
        passed = 0
        for later in self.order[step:]:
            if passed >= self.options.max_reuse_distance or not released:
                break
            for weight in self.of_module[later.module]:
                released.discard(weight)
                passed += self.parameters[weight].elements
        for weight in sorted(released & self.available):
            self.available.discard(weight)
            self.live -= self.parameters[weight].elements
            self.timeline.free(after(visit.end), self.sizes.pop(weight), Role.WEIGHTS)
