"""ZeRO stages 1 and 2: `DeepSpeedZeroOptimizer`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpu_magic.estimates.deepspeed.step import MASTER, Gradient, Rank, padded
from hpu_magic.estimates.deepspeed.timeline import START, after
from hpu_magic.estimates.tracing.program import Parameter, Role


class _Partition:
    """The equal parts into which the flat weights of a group are divided."""

    def __init__(self, parameters: Sequence[Parameter], cards: int) -> None:
        self.parameters = parameters
        self.elements = sum(each.elements for each in parameters)
        self.size = padded(self.elements, 2 * cards) // cards
        self._starts: dict[int, int] = {}
        start = 0
        for each in parameters:
            self._starts[each.weight] = start
            start += each.elements

    def parts(self, parameter: Parameter) -> Iterator[tuple[int, int]]:
        """Yield the ranks that update a parameter, and how many elements each rank updates."""
        start = self._starts[parameter.weight]
        end = start + parameter.elements
        while start < end:
            number = start // self.size
            count = min(end, (number + 1) * self.size) - start
            yield number, count
            start += count

    def of(self, rank: int) -> list[Parameter]:
        """Return the parameters that a rank updates at least in part."""
        return [
            each for each in self.parameters if rank in (number for number, _ in self.parts(each))
        ]


@dataclass
class _Sharded:
    """A rank's reduction of gradients, and its optimizer step."""

    rank: Rank

    def __post_init__(self) -> None:
        rank = self.rank
        self.timeline, self.options = rank.timeline, rank.configuration
        self.contiguous = self.options.contiguous_gradients or self.options.offload_optimizer
        self.partitions = [_Partition(group, rank.cards) for group in rank.groups]
        self._of_weight = {
            each.weight: partition for partition in self.partitions for each in partition.parameters
        }
        self.own = {each.weight for part in self.partitions for each in part.of(rank.number)}
        self.bucket: list[Gradient] = []
        self.kept = 0
        """Size in bytes of the gradients in this rank's partitions."""
        self.left = 0
        """Size in bytes of the other gradients, which are freed after the reduction."""
        self._partition_exists = False
        own = sum(each.elements for each in rank.trained if each.weight in self.own)
        self.own_bytes = own * rank.itemsize
        self.accumulating = self.options.accumulate > 1
        self.accumulated = 0
        """Size in bytes of this rank's gradients from earlier batches."""
        if self.accumulating and self.options.stage == 2 and not self.options.offload_optimizer:
            self.accumulated = self.own_bytes

    def hold(self) -> None:
        """Add the memory that is in use during the entire step."""
        rank, item = self.rank, self.rank.itemsize
        padding = sum(part.size * rank.cards - part.elements for part in self.partitions)
        rank.hold(padding * item, Role.WEIGHTS)
        rank.hold(self.accumulated, Role.GRADIENTS)
        if self.options.offload_optimizer:
            largest = max(each.elements for each in rank.trained)
            rank.hold(largest * item, Role.GRADIENTS)
        else:
            rank.hold(sum(part.size for part in self.partitions) * MASTER, Role.OPTIMIZER)

    def backward(self) -> None:
        """Record the gradients and their reduction."""
        rank = self.rank
        if not rank.gradients:
            return
        rank.create_gradients()
        buffers = self.options.reduce_bucket_size * rank.itemsize
        buffers *= self.contiguous * (1 + self.options.overlap_comm)
        kept = self.accumulating and self.options.stage == 1
        begin = START if kept else after(rank.gradients[0].ready)
        self.timeline.allocate(begin, buffers, Role.EXCHANGED)
        if self.options.stage == 2 or self.options.overlap_comm:
            for gradient in rank.gradients:
                self._add(gradient, after(gradient.ready))
        else:
            by_weight = {each.parameter.weight: each for each in rank.gradients}
            for parameter in rank.trained:
                if parameter.weight in by_weight:
                    self._add(by_weight[parameter.weight], rank.end)
        self._reduce(rank.end)
        self.timeline.free(rank.end, self.left, Role.GRADIENTS)
        self.timeline.free(rank.end, buffers, Role.EXCHANGED)
        if self.accumulated:  # the new gradients are added to those of earlier batches
            self.timeline.free(rank.end, self.kept, Role.GRADIENTS)
            self.kept = self.accumulated

    def _fits(self, gradient: Gradient) -> bool:
        """Return whether a gradient is copied to the bucket's buffer."""
        return self.contiguous and gradient.elements <= self.options.reduce_bucket_size

    def _add(self, gradient: Gradient, time: int) -> None:
        held = sum(each.elements for each in self.bucket)
        if held + gradient.elements > self.options.reduce_bucket_size:
            self._reduce(time)
        if self._fits(gradient):
            self.timeline.free(time, gradient.bytes, Role.GRADIENTS)
        self.bucket.append(gradient)

    def _reduce(self, time: int) -> None:
        """Record the reduction of the gradients in the bucket."""
        for copied in self._copies():
            self.timeline.borrow(time, copied * self.rank.itemsize, Role.EXCHANGED)
        for gradient in self.bucket:
            size = 0 if self._fits(gradient) else gradient.bytes
            if gradient.parameter.weight in self.own:
                self._keep(gradient, size, time)
            elif self.options.stage == 2:
                self.timeline.free(time, size, Role.GRADIENTS)
            else:
                self.left += size
        self.bucket.clear()

    def _keep(self, gradient: Gradient, size: int, time: int) -> None:
        """Record how a gradient of this rank moves to its partition."""
        if self.options.offload_optimizer:
            converted = gradient.elements * MASTER if self.rank.copies_weights else 0
            self.timeline.borrow(time, converted, Role.GRADIENTS)
        elif not self.contiguous:
            self.kept += size
            return
        elif not self._partition_exists:
            self._partition_exists = True
            self.kept = self.own_bytes
            self.timeline.allocate(time, self.kept, Role.GRADIENTS)
        self.timeline.free(time, size, Role.GRADIENTS)

    def _copies(self) -> Iterator[int]:
        """Yield the size in elements of each copy of slices; a single slice is not copied."""
        if not self.contiguous:
            slices = [each.elements for each in self.bucket]
            yield sum(slices) if len(slices) > 1 else 0
            return
        if not self.options.reduce_scatter:
            return
        slices, previous = [], None
        for gradient in self.bucket:
            parameter = gradient.parameter
            for number, count in self._of_weight[parameter.weight].parts(parameter):
                if number == previous:
                    slices[-1] += count
                else:
                    slices.append(count)
                previous = number
        flat: list[int] = []
        for count in slices:
            flat.append(count)
            if sum(flat) > self.options.reduce_bucket_size:
                yield sum(flat) if len(flat) > 1 else 0
                flat = []
        yield sum(flat) if len(flat) > 1 else 0

    def step(self) -> None:
        """Record the optimizer step, which updates one partition after the other."""
        if self.options.offload_optimizer:
            return
        rank, timeline, end = self.rank, self.timeline, self.rank.end
        for part in self.partitions:
            own = part.of(rank.number)
            several = len(own) + (part.elements < (rank.number + 1) * part.size) > 1
            flat = part.size * rank.itemsize if several else 0
            converted = part.size * MASTER if rank.copies_weights else 0
            copied = flat or converted
            kept = self.kept if copied and part is self.partitions[-1] else 0
            timeline.allocate(end, flat, Role.GRADIENTS)
            if rank.recorded:  # the gradients are released before the recorded operations run
                timeline.free(end, kept, Role.GRADIENTS)
            timeline.borrow(end, converted, Role.GRADIENTS)
            timeline.free(end, flat, Role.GRADIENTS)
            if not rank.recorded:
                timeline.free(end, kept, Role.GRADIENTS)
            existing = 0 if copied else part.size * MASTER
            rank.step([((part.size,), part.parameters[0])], existing=existing)


def record(rank: Rank) -> None:
    """Record the memory that ZeRO stages 1 and 2 add to a step."""
    sharded = _Sharded(rank)
    sharded.hold()
    sharded.backward()
    sharded.step()
