"""ZeRO stage 3: `DeepSpeedZeroOptimizer_Stage3`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpu_magic.estimates.deepspeed.gathering import Coordinator
from hpu_magic.estimates.deepspeed.step import MASTER, Gradient, Rank, padded
from hpu_magic.estimates.deepspeed.timeline import after
from hpu_magic.estimates.tracing.program import Parameter, Role


def record(rank: Rank) -> None:
    """Record the memory that ZeRO stage 3 adds to a step."""
    _hold(rank)
    _coordinator(rank).run()
    _reduce_gradients(rank)
    if not rank.configuration.offload_optimizer:
        _step(rank)


def _coordinator(rank: Rank) -> Coordinator:
    return Coordinator(rank.program, rank.configuration, rank.cards, rank.timeline)


def _share(rank: Rank, parameter: Parameter) -> int:
    """Return the number of elements in a rank's partition of a parameter."""
    return padded(parameter.elements, rank.cards) // rank.cards


def _hold(rank: Rank) -> None:
    options, item = rank.configuration, rank.itemsize
    coordinator = _coordinator(rank)
    if not options.offload_param:
        weights = sum(coordinator.partition(each.weight) for each in rank.program.parameters)
        rank.hold(weights, Role.WEIGHTS)
    partitions = sum(_share(rank, each) for each in rank.trained)
    if options.contiguous_gradients:
        rank.hold(options.reduce_bucket_size * item, Role.EXCHANGED)
    if not options.offload_optimizer:
        rank.hold(partitions * item, Role.GRADIENTS)
        # DeepSpeed would update float32 partitions in place, but it compares their device with a
        # string, so it copies them as well.
        rank.hold(partitions * MASTER, Role.OPTIMIZER)


def _reduce_gradients(rank: Rank) -> None:
    """Record the gradients, the bucket that they are copied to, and its reduction."""
    options, timeline = rank.configuration, rank.timeline
    rank.create_gradients()
    bucket: list[Gradient] = []

    def fits(gradient: Gradient) -> bool:
        return options.contiguous_gradients and gradient.elements <= options.reduce_bucket_size

    def reduce(time: int) -> None:
        contiguous = options.contiguous_gradients and not options.reduce_scatter
        alone = len(bucket) == 1 and bucket[0].elements % rank.cards == 0
        if bucket and not contiguous and not alone:
            elements = sum(padded(each.elements, rank.cards) for each in bucket)
            timeline.borrow(time, elements * rank.itemsize, Role.EXCHANGED)
        for gradient in bucket:
            if not fits(gradient):
                timeline.free(time, gradient.bytes, Role.GRADIENTS)
        bucket.clear()

    for gradient in rank.gradients:
        time = after(gradient.ready)
        if sum(each.elements for each in (*bucket, gradient)) > options.reduce_bucket_size:
            reduce(time)
        if fits(gradient):
            timeline.free(time, gradient.bytes, Role.GRADIENTS)
        bucket.append(gradient)
    reduce(rank.end)


def _subgroups(rank: Rank, group: Sequence[Parameter]) -> Iterator[list[Parameter]]:
    """Yield the parameters that the optimizer updates together."""
    found: list[Parameter] = []
    for each in group:
        found.append(each)
        if sum(_share(rank, one) for one in found) >= rank.configuration.sub_group_size:
            yield found
            found = []
    if found:
        yield found


def _step(rank: Rank) -> None:
    timeline, end = rank.timeline, rank.end
    for group in rank.groups:
        for parameters in _subgroups(rank, group):
            elements = sum(_share(rank, each) for each in parameters)
            flat = elements * rank.itemsize if len(parameters) > 1 else 0
            converted = elements * MASTER if rank.copies_weights else 0
            timeline.allocate(end, flat, Role.GRADIENTS)
            timeline.borrow(end, converted, Role.GRADIENTS)
            timeline.free(end, flat, Role.GRADIENTS)
            existing = 0 if flat or converted else elements * MASTER
            rank.step([((elements,), parameters[0])], existing=existing)
