"""The graphs in which the operations of a step run."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from hpu_magic.estimates.cost.compiled import LAYER, compiled_graphs
from hpu_magic.estimates.layout import Buckets, Layout
from hpu_magic.estimates.tracing.program import Phase, Program, Role

_GATHERS = 3  # stage of ZeRO
_PERSISTENT = 100_000  # elements of a weight that DeepSpeed does not shard


@dataclass(frozen=True)
class Graphs:
    """Numbers of the graphs of a step, one for each operation."""

    whole: list[int]
    """The graph of each operation if no collective divides it."""
    parts: list[int]
    """The graph of each operation, divided by collectives."""
    eager: frozenset[int] = frozenset()
    """Indexes of the operations that run in eager mode between compiled graphs."""


def graphs_of(
    program: Program, mode: str, layout: Layout, reduced: Set[str] = frozenset()
) -> Graphs:
    """Return the graphs of a step.

    In lazy mode and HPU Graphs, the forward and backward passes are one graph, and the optimizer is
    another. A graph ends when FSDP or ZeRO stage 3 gathers weights, and when DDP exchanges a bucket
    of gradients. In compiled code, each pass is a graph that hooks, collectives, buckets and
    modules that PyTorch does not compile may divide. Autograd creates the gradient of the loss
    between the passes. ``reduced`` contains the paths of the modules whose results an all-reduce
    adds.
    """
    operations = program.operations
    if mode == "compile":
        numbers, eager = compiled_graphs(program, layout, reduced)
        return Graphs(numbers, numbers, eager)
    whole = [_OPTIMIZER if each.phase is Phase.OPTIMIZER else _PASSES for each in operations]
    if mode == "eager" or layout.data == 1:
        return Graphs(whole, whole)
    if layout.zero == _GATHERS:
        gathered = _modules_of_zero(program) if layout.in_float32 else _layers(program)
        parts = _divided(whole, _ends_before_modules(program, gathered))
        return Graphs(parts, parts)
    if layout.zero:
        return Graphs(whole, whole)
    return Graphs(whole, _divided(whole, _ends_of_buckets(program, layout.buckets)))


def _divided(graphs: list[int], ends: set[int]) -> list[int]:
    """Divide the graph of the passes after some operations."""
    parts, passed = [], 0
    for number, graph in enumerate(graphs):
        parts.append(_OPTIMIZER + 1 + passed if graph != _OPTIMIZER else graph)
        passed += number in ends
    return parts


_PASSES, _OPTIMIZER = range(2)


def _layers(program: Program) -> list[str]:
    """Return the layer of a list that each operation belongs to, or an empty string."""
    found = (LAYER.match(operation.module) for operation in program.operations)
    return [each[0] if each else "" for each in found]


def _modules_of_zero(program: Program) -> list[str]:
    """Return the module of each operation if DeepSpeed gathers its weights, or an empty string."""
    sizes = ((each.name.rpartition(".")[0], each.elements) for each in program.parameters)
    sharded = {name for name, elements in sizes if elements > _PERSISTENT}
    names = (operation.module for operation in program.operations)
    return [name if name in sharded else "" for name in names]


def _ends_before_modules(program: Program, modules: list[str]) -> set[int]:
    """Return the indexes of the operations after which another module begins."""
    ends, current = set(), ""
    for number, (operation, module) in enumerate(zip(program.operations, modules, strict=True)):
        if module and operation.phase is not Phase.OPTIMIZER and module != current:
            current = module
            ends.add(number - 1)
    return ends


def _ends_of_buckets(program: Program, buckets: Buckets) -> set[int]:
    """Return the indexes of the operations that complete a bucket of gradients.

    DDP fills its buckets in the order in which the gradients are ready.
    """
    ready: dict[int, int] = {}
    for number, operation in enumerate(program.operations):
        if operation.phase is not Phase.OPTIMIZER:
            ready.update((operand.storage, number) for operand in operation.writes)
    gradients = [
        (ready[number], storage.bytes)
        for number, storage in enumerate(program.storages)
        if storage.role is Role.GRADIENTS and number in ready
    ]
    ends, filled, limit = set(), 0, buckets.first
    for number, size in sorted(gradients):
        filled += size
        if filled >= limit:
            ends.add(number)
            filled, limit = 0, buckets.others
    return ends
