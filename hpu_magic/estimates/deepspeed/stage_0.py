"""DeepSpeed without ZeRO: `DeepSpeedEngine` and its optimizers for 16-bit weights."""

from __future__ import annotations

from hpu_magic.estimates.deepspeed.step import MASTER, Rank
from hpu_magic.estimates.tracing.program import Parameter, Role

BUCKET = 500_000_000
"""Number of elements in a bucket of gradients; the configuration cannot change it."""


def record(rank: Rank) -> None:
    """Record the memory that DeepSpeed adds to a step without ZeRO."""
    if rank.copies_weights:
        rank.create_gradients()
    _reduce(rank)
    if rank.copies_weights:
        _step_copies(rank)


def _reduce(rank: Rank) -> None:
    """Record copies of the gradients in buffers; a buffer with one gradient is not a copy."""
    if rank.cards == 1:
        return
    held: list[Parameter] = []

    def flush() -> None:
        if len(held) > 1:
            elements = sum(each.elements for each in held)
            rank.timeline.borrow(rank.end, elements * rank.itemsize, Role.EXCHANGED)
        held.clear()

    for parameter in rank.trained:
        held.append(parameter)
        if sum(each.elements for each in held) > BUCKET:
            flush()
    flush()


def _step_copies(rank: Rank) -> None:
    """Record the step of an optimizer that updates float32 copies of all weights.

    DeepSpeed's own Adam updates one flat copy. Other optimizers update a copy of each weight.
    """
    timeline, end = rank.timeline, rank.end
    flat = rank.configuration.optimizer == "fusedadamw"
    tensors = []
    if rank.recorded:  # the gradients have been released when the recorded operations run
        _free_gradients(rank)
    for group in rank.groups:
        elements = sum(each.elements for each in group)
        rank.hold(elements * MASTER, Role.OPTIMIZER)
        shapes = [(elements,)] if flat else [_shape(rank, each) for each in group]
        tensors += [(shape, group[0]) for shape in shapes]
        if flat:  # the gradients are first converted and then copied to a flat tensor
            timeline.borrow(end, 2 * elements * MASTER, Role.GRADIENTS)
    if flat and not rank.recorded:
        _free_gradients(rank)
    rank.step(tensors)


def _free_gradients(rank: Rank) -> None:
    for gradient in rank.gradients:
        rank.timeline.free(rank.end, gradient.bytes, Role.GRADIENTS)


def _shape(rank: Rank, parameter: Parameter) -> tuple[int, ...]:
    return tuple(rank.model.get_parameter(parameter.name).shape)
