"""What of a step's memory one of several cards has."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hpu_magic.estimates.cost.sharding import Sharding
from hpu_magic.estimates.cost.work import work_of
from hpu_magic.estimates.layout import Layout
from hpu_magic.estimates.tracing.program import Phase, Program, Role, Storage

# The stage of ZeRO from which on the cards share it.
_SHARED_FROM = {Role.OPTIMIZER: 1, Role.GRADIENTS: 2, Role.WEIGHTS: 3}


BUCKET = 10**9
"""Bytes of a bucket in which ZeRO's first two stages reduce: DeepSpeed's 5e8 elements of bf16."""


def as_kept(program: Program, layout: Layout) -> Program:
    """Return a step with what the optimizer keeps under a layout.

    DeepSpeed's ZeRO steps weights of its own in float32, with the optimizer's state in that type,
    and casts them to the model's; it has them of each weight that has a gradient.
    """
    steps = any(True for _ in program.of_phase(Phase.OPTIMIZER))
    if not (layout.in_float32 and steps):
        return program
    storages = [
        replace(one, bytes=_in_float32(one)) if one.role is Role.OPTIMIZER else one
        for one in program.storages
    ]
    narrow = [
        one
        for one in program.storages
        if one.role is Role.GRADIENTS and _in_float32(one) > one.bytes
    ]
    own = [Storage(_in_float32(one), Role.OPTIMIZER, one.module) for one in narrow]
    return replace(program, storages=[*storages, *own])


def _in_float32(storage: Storage) -> int:
    dtype = storage.dtype
    if dtype is None or not dtype.is_floating_point or dtype.itemsize >= 4:
        return storage.bytes
    return storage.bytes * 4 // dtype.itemsize


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


def collective_buffers(program: Program, layout: Layout) -> int:
    """Return the bytes that a card keeps for the exchange with those that have other data.

    DDP reduces gradients in buckets that are together as large as the gradients; ZeRO's first two
    stages in two buckets; its third gathers the weights of a layer while the one before it runs,
    and has the gradients of one.
    """
    if layout.data == 1 or not program.of_role(Role.GRADIENTS):
        return 0
    parts = layout.tensor * layout.pipeline
    gradients = program.of_role(Role.GRADIENTS) // parts
    if layout.zero == 0:
        return gradients
    if layout.zero < 3:
        return 2 * min(gradients, BUCKET)
    return (
        2 * _largest_layer(program, Role.WEIGHTS) + _largest_layer(program, Role.GRADIENTS)
    ) // parts


def _largest_layer(program: Program, role: Role) -> int:
    """Return the bytes of a role in the layer that has most; the rest of the model is one more."""
    layers: Counter[str] = Counter()
    for storage in program.storages:
        if storage.role is role:
            names = storage.module.split(".")
            last = next((at for at, name in enumerate(names) if name.isdecimal()), None)
            layers[".".join(names[: last + 1]) if last is not None else storage.module] += (
                storage.bytes
            )
    return max(layers.values(), default=0)


def _divided(program: Program, cards: int) -> set[int]:
    """Return the storages of which each card of a tensor-parallel group has a part."""
    if cards == 1:
        return set()
    sharding = Sharding(program, cards)
    found: set[int] = set()
    for operation in program.operations:
        share = sharding.share(operation, work_of(operation))
        if share.makes_parts:
            found.update(one.storage for one in operation.writes)
    return found
