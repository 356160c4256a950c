"""The graphs of compiled code.

Dynamo compiles a function together with the functions that it calls. It cannot compile the hooks of
FSDP, nor `torch.distributed.all_reduce`, which adds the partial sums of tensor-parallel layers. The
modules with hooks or partial sums are compiled separately, and they divide the graphs of the
functions that call them. If a function calls such modules in a loop, Dynamo does not compile the
function, but each module that it calls. In a model with DDP, PyTorch's DDPOptimizer divides the
graphs at the buckets of gradients.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from hpu_magic.estimates.cost.products import name_of
from hpu_magic.estimates.layout import FIRST_BUCKET, Layout
from hpu_magic.estimates.tracing.program import NEVER, Operation, Phase, Program

LAYER = re.compile(r"(?:.*?\.)??\d+(?=\.|$)")
"""Matches the path of the outermost layer of a list that contains a module."""


def compiled_graphs(
    program: Program, layout: Layout, reduced: Set[str]
) -> tuple[list[int], frozenset[int]]:
    """Return the graph of each operation, and the operations that run in eager mode.

    Each operation in eager mode has its own graph. ``reduced`` contains the paths of the modules
    whose results are partial sums, which an all-reduce adds.
    """
    places = _places(program, layout, reduced)
    sums = frozenset(_sums_between_graphs(program, places))
    eager = sums.union(number for number, place in enumerate(places) if place is None)
    numbers, used, current = [], 0, 0
    before: _Place | None = None
    for number, place in enumerate(places):
        begins = number in eager or place != before
        used += begins
        if begins and number not in sums:  # sums do not divide the graph
            current, before = used, place
        numbers.append(used if number in sums else current)
    return numbers, eager


_Place = tuple[str, Phase, int]
"""The module whose forward pass is compiled, the phase of the step, and the bucket."""


def _places(program: Program, layout: Layout, reduced: Set[str]) -> list[_Place | None]:
    """Return what the operations of a graph have in common; None for eager mode."""
    frames = _Frames(program, layout, reduced)
    has_buckets = layout.data > 1 and not layout.zero and bool(program.parameters)
    buckets = (
        _buckets(program, layout.buckets.others) if has_buckets else [0] * len(program.operations)
    )
    places: list[_Place | None] = []
    for operation, bucket in zip(program.operations, buckets, strict=True):
        if operation.phase is Phase.OPTIMIZER:
            places.append(("", Phase.OPTIMIZER, 0))
            continue
        phase = Phase.FORWARD if operation.phase is Phase.FORWARD else Phase.BACKWARD
        frame = frames.of(operation.module)
        places.append(None if frame is None else (frame, phase, bucket))
    for number in _gradient_of_loss(program):
        places[number] = None
    return places


class _Frames:
    """Finds the module whose forward pass Dynamo compiles, with all modules that it calls."""

    def __init__(self, program: Program, layout: Layout, reduced: Set[str]) -> None:
        self._classes = program.classes
        self._not_compiled = program.not_compiled()
        has_hooks = layout.data > 1 and bool(layout.zero) and not layout.in_float32  # FSDP
        layers = (LAYER.match(name) for name in (program.classes if has_hooks else reduced))
        lists = {each[0].rpartition(".")[0] for each in layers if each}
        of_lists = (name for name in lists if program.classes.get(name) == "ModuleList")
        loops = lists.union(name.rpartition(".")[0] for name in of_lists)
        self._divided = {path for name in loops | reduced for path in _path(name)}
        # Dynamo does not compile the function for any module of the same class.
        self._with_loops = {program.classes[name] for name in loops if name in program.classes}

    def of(self, module: str) -> str | None:
        """Return the path of the compiled module; None if the module runs in eager mode."""
        if any(not each or _is_inside(module, each) for each in self._not_compiled):
            return None
        path = list(_path(module))
        for outer, inner in zip(path, [*path[1:], None], strict=True):
            is_divided = outer in self._divided and inner in self._divided
            if self._classes.get(outer) not in self._with_loops and not is_divided:
                return outer
        return None


def _path(module: str) -> Iterator[str]:
    """Yield the path of the model, of each module that contains a module, and its own path."""
    yield ""
    names = module.split(".") if module else []
    for count in range(1, len(names) + 1):
        yield ".".join(names[:count])


def _is_inside(module: str, outer: str) -> bool:
    return module == outer or module.startswith(f"{outer}.")


def _gradient_of_loss(program: Program) -> Iterator[int]:
    """Yield the index of the operation with which autograd begins the backward pass."""
    phases = [operation.phase for operation in program.operations]
    if Phase.BACKWARD in phases:
        last = phases.index(Phase.BACKWARD) - 1
        if last >= 0 and name_of(program.operations[last].operator) == "ones_like":
            yield last


def _buckets(program: Program, size: int) -> list[int]:
    """Return the bucket of each operation, like `torch._dynamo.backends.distributed.DDPOptimizer`.

    It adds up the sizes of the weights that are arguments of each function, in the reverse order of
    the forward pass, and begins a bucket before the call that completes the previous one. Calls
    without weights at the start of the forward pass do not have their own bucket.
    """
    trained = {each.weight for each in program.parameters if each.trained}
    forward = [
        number for number, each in enumerate(program.operations) if each.phase is Phase.FORWARD
    ]
    starts = list[int]()
    filled, limit, first, call = 0, FIRST_BUCKET, 0, NEVER
    for number in reversed(forward):
        after, call = call, program.operations[number].call
        if call == NEVER or call != after:
            if filled >= limit:
                starts.append(first)
                filled, limit = 0, size
            used = trained & program.calls[call] if call != NEVER else ()
            filled += sum(program.storages[each].bytes for each in used)
        first = number
    if not filled:
        starts = starts[:-1]
    return _bucket_of_operations(program, set(starts))


def _bucket_of_operations(program: Program, starts: set[int]) -> list[int]:
    """Return the bucket of each operation; the backward pass uses the buckets of its nodes."""
    found, current = [], 0
    of_node: dict[int, int] = {}
    for number, operation in enumerate(program.operations):
        if operation.phase is Phase.FORWARD:
            current += number in starts
            of_node.setdefault(operation.node, current)
        else:
            current = min(current, of_node.get(operation.node, current))
        found.append(current)
    return found


def _sums_between_graphs(program: Program, places: list[_Place | None]) -> Iterator[int]:
    """Yield the indexes of sums of gradients from different graphs.

    If another graph made the tensor, autograd adds the gradients in eager mode, after the last
    graph has added its own gradients. The graph that made the tensor adds all gradients itself.
    """
    # The graph that made a gradient or, for a sum, passes it to both summands.
    origins: dict[int, _Place | None] = {}
    sums: dict[int, int] = {}
    for number, (operation, place) in enumerate(zip(program.operations, places, strict=True)):
        if operation.is_view or operation.phase in (Phase.FORWARD, Phase.OPTIMIZER):
            continue
        read = [each.storage for each in operation.reads]
        earlier = [sums.pop(each) for each in read if each in sums]
        in_same = [each for each in earlier if places[each] == place]
        yield from set(earlier).difference(in_same)
        if _adds_gradients(operation):
            from_others = [each for each in read if origins.get(each, place) != place]
            if in_same or from_others:
                sums[operation.writes[0].storage] = number
        else:
            origins |= {each: place for each in read if each in origins}
        origins |= dict.fromkeys((each.storage for each in operation.writes), place)
    yield from sums.values()


def _adds_gradients(operation: Operation) -> bool:
    """Return whether autograd adds two gradients of a tensor, and not a derivative's formula."""
    shapes = {each.shape for each in operation.reads}
    is_sum = name_of(operation.operator) == "add" and operation.phase is Phase.BACKWARD
    return is_sum and len(operation.reads) == 2 and len(shapes) == 1
