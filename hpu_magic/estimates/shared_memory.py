"""Calculate the memory that a step uses on one of several cards."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hpu_magic.estimates.cost.sharding import Sharding
from hpu_magic.estimates.cost.work import work_of
from hpu_magic.estimates.layout import Layout
from hpu_magic.estimates.tracing.program import Phase, Program, Role, Storage

# The lowest ZeRO stage that shards the storages of each role.
_SHARED_FROM = {Role.OPTIMIZER: 1, Role.GRADIENTS: 2, Role.WEIGHTS: 3}


BUCKET = 10**9
"""Size in bytes of a bucket in ZeRO stages 1 and 2: DeepSpeed's 5e8 elements in bf16."""


def with_optimizer_copies(program: Program, layout: Layout) -> Program:
    """Add the optimizer's own copies of the weights to a program.

    DeepSpeed's ZeRO optimizer updates float32 copies of the weights, keeps its state in float32 as
    well, and then casts the copies to the model's dtype. Every weight that has a gradient is
    copied.
    """
    has_optimizer = any(True for _ in program.of_phase(Phase.OPTIMIZER))
    if not (layout.in_float32 and has_optimizer):
        return program
    storages = [
        replace(each, bytes=_in_float32(each)) if each.role is Role.OPTIMIZER else each
        for each in program.storages
    ]
    copies = [
        Storage(_in_float32(each), Role.OPTIMIZER, each.module, of_experts=each.of_experts)
        for each in program.storages
        if each.role is Role.GRADIENTS and _in_float32(each) > each.bytes
    ]
    return replace(program, storages=[*storages, *copies])


def _in_float32(storage: Storage) -> int:
    dtype = storage.dtype
    if dtype is None or not dtype.is_floating_point or dtype.itemsize >= 4:
        return storage.bytes
    return storage.bytes * 4 // dtype.itemsize


def sizes_on_one_card(program: Program, layout: Layout) -> list[int]:
    """Return the size in bytes of each storage on the card that uses the most memory.

    Tensor and pipeline parallelism shard weights, gradients and optimizer state across cards. ZeRO
    also shards these tensors across cards that process different data. Gradients that are views of
    DDP's buckets have no memory of their own. In a pipeline, the first stage uses the most memory,
    because it keeps the activations of one batch per stage.
    """
    divided = _divided(program, layout.tensor)
    in_buckets = layout.data > 1 and not layout.zero and layout.buckets.views
    sizes = []
    for number, storage in enumerate(program.storages):
        share = 1.0
        if storage.role in _SHARED_FROM:
            share /= layout.tensor * layout.pipeline
            if layout.zero >= _SHARED_FROM[storage.role]:
                share /= layout.replicas(of_experts=storage.of_experts)
        elif number in divided:
            share /= layout.tensor
        if storage.role is Role.GRADIENTS and in_buckets:
            share = 0.0
        sizes.append(round(storage.bytes * share))
    return sizes


def collective_buffers(program: Program, layout: Layout) -> int:
    """Return the size in bytes of a card's buffers for data-parallel communication.

    DDP's buckets have the same total size as the gradients. ZeRO stages 1 and 2 use two buckets.
    ZeRO stage 3 gathers the weights of a layer while the previous layer runs, and holds the
    gradients of one layer.
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
    """Return the bytes of a role in the largest layer or module outside the layers."""
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
    """Return the storages that are sharded across the cards of a tensor-parallel group."""
    if cards == 1:
        return set()
    sharding = Sharding(program, cards)
    found: set[int] = set()
    for operation in program.operations:
        share = sharding.share(operation, work_of(operation))
        if share.makes_parts:
            found.update(written.storage for written in operation.writes)
    return found
