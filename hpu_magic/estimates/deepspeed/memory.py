"""Calculate the memory of a step that DeepSpeed runs."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from hpu_magic.estimates.deepspeed import stage_0, stage_3, stages_1_2, timeline
from hpu_magic.estimates.deepspeed.configuration import Configuration
from hpu_magic.estimates.deepspeed.step import Rank
from hpu_magic.estimates.deepspeed.timeline import Timeline
from hpu_magic.estimates.memory import Memory
from hpu_magic.estimates.tracing.optimizers import Make
from hpu_magic.estimates.tracing.program import Program, Role

_STAGES = {
    0: stage_0.record,
    1: stages_1_2.record,
    2: stages_1_2.record,
    3: stage_3.record,
}


def of_step(
    program: Program,
    configuration: Configuration,
    cards: int,
    *,
    model: nn.Module,
    make: Make | None,
    recorded: bool,
) -> Memory:
    """Return the memory usage of the card that uses the most memory.

    ``program`` is a step on a single card, and ``make`` creates its optimizer. If ``recorded`` is
    true, the step runs in lazy mode.
    """
    found = []
    for number in {0, cards - 1}:
        rank = Rank(program, configuration, cards, number, model, make, recorded, Timeline())
        _STAGES[configuration.stage](rank)
        usage = timeline.memory(
            _traced(rank),
            rank.timeline,
            len(program.operations),
            recorded=recorded,
            sizes=_sizes(rank),
        )
        found.append(usage)
    return max(found, key=lambda usage: usage.peak)


def _keeps_optimizer(rank: Rank) -> bool:
    """Return whether the optimizer updates the model's weights, as in the traced program."""
    return rank.configuration.stage == 0 and not rank.copies_weights


def _traced(rank: Rank) -> Program:
    if _keeps_optimizer(rank):
        return rank.program
    return replace(rank.program, operations=rank.program.operations[: rank.operations])


def _sizes(rank: Rank) -> list[int]:
    """Return the sizes of the program's storages, except for those that the timeline contains."""
    storages = rank.program.storages
    sizes = [each.bytes for each in storages]
    if _keeps_optimizer(rank):
        return sizes
    replaced = rank.in_gradients()
    if rank.configuration.stage == 3:
        replaced |= {each.weight for each in rank.program.parameters}
    for number, storage in enumerate(storages):
        if number in replaced or storage.role is Role.OPTIMIZER:
            sizes[number] = 0
    return sizes
