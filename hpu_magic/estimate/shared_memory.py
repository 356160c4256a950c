"""What of a step's memory one of several cards has."""

from __future__ import annotations

from hpu_magic.estimate.cost.sharding import Sharding
from hpu_magic.estimate.cost.work import work_of
from hpu_magic.estimate.layout import Layout
from hpu_magic.estimate.tracing.program import Program, Role

# The stage of ZeRO from which on the cards share it.
_SHARED_FROM = {Role.OPTIMIZER: 1, Role.GRADIENTS: 2, Role.WEIGHTS: 3}


def sizes_on_one_card(program: Program, layout: Layout) -> list[int]:
    """Return the bytes of each storage on the card that has most.

    Weights, gradients and the optimizer's state are divided among the cards of tensor and pipeline
    parallelism, and by ZeRO among those that have different data. Of pipelines, it is the first
    stage: it keeps the activations of as many batches as there are stages, of its layers each.
    """
    divided = _divided(program, layout.tensor)
    sizes = []
    for number, storage in enumerate(program.storages):
        share = 1.0
        if storage.role in _SHARED_FROM:
            share /= layout.tensor * layout.pipeline
            if layout.zero >= _SHARED_FROM[storage.role]:
                share /= layout.data
        elif number in divided:
            share /= layout.tensor
        sizes.append(round(storage.bytes * share))
    return sizes


def _divided(program: Program, cards: int) -> set[int]:
    """Return the storages of which each card of a tensor-parallel group has a part."""
    if cards == 1:
        return set()
    sharding = Sharding(program, cards)
    found: set[int] = set()
    for operation in program.operations:
        share = sharding.share(operation, work_of(operation))
        if share.divided > 1 and not share.reduced:
            found.update(one.storage for one in operation.writes)
    return found
