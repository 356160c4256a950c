"""Convert captured graphs to programs that the engine runs without Python."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from hpu_magic.simulator import engine

_ARITHMETIC = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "/",
    operator.mod: "%",
}
_INPUTS = (torch.Tensor, torch.SymInt, int)
_SIZES = frozenset({torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int})


class _BeyondPrograms(Exception):
    """Raised if a node cannot be converted and can only run in Python."""


def program_of(graph: torch.fx.Graph) -> Any:
    """Convert a graph to a program whose ``run`` method empties its list of inputs.

    The constants of the graph are further inputs of the program; see `constants_of`. The arguments
    in `unused_objects` are not inputs. Returns None if the graph contains anything other than
    constants, operators and arithmetic on sizes, for example higher-order operators.
    """
    native = engine.load()
    unused = unused_objects(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    inputs = [node for number, node in enumerate(placeholders) if number not in unused]
    inputs += _constants(graph)
    if not all(isinstance(node.meta.get("val"), _INPUTS) for node in inputs):
        return None
    program = native.Program(len(inputs))
    values = {node: program.input(number) for number, node in enumerate(inputs)}
    try:
        for node in graph.nodes:
            if node.op == "call_function":
                values[node] = _lowered(program, node, values)
            elif node.op == "output":
                program.finish(list(_operand(node.args[0], values)))
            elif node not in values and node not in placeholders:
                return None
    except _BeyondPrograms:
        return None
    return program


def unused_objects(graph: torch.fx.Graph) -> set[int]:
    """Return the numbers of the arguments that are neither tensors nor numbers, and are not used.

    The device meshes of DTensors are such arguments.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    return {
        number
        for number, node in enumerate(placeholders)
        if not node.users and not isinstance(node.meta.get("val"), _INPUTS)
    }


def constants_of(graph: torch.fx.Graph) -> list[torch.Tensor]:
    """Return the tensors that a graph contains, such as the empty tensors of a new cache."""
    return [getattr(graph.owning_module, node.target) for node in _constants(graph)]


def _constants(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    owner = graph.owning_module
    return [
        node
        for node in graph.nodes
        if node.op == "get_attr" and isinstance(getattr(owner, node.target, None), torch.Tensor)
    ]


def _lowered(program: Any, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
    """Add a node to the program and return the slot of its value."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return _lowered_call(program, target, node, values)
    if target is operator.getitem:
        return _lowered_choice(program, node, values)
    if target in _ARITHMETIC and isinstance(node.meta.get("val"), int | torch.SymInt):
        return program.arithmetic(_ARITHMETIC[target], *_operand(node.args, values))
    raise _BeyondPrograms


def _lowered_call(
    program: Any,
    op: torch._ops.OpOverload,
    node: torch.fx.Node,
    values: dict[torch.fx.Node, Any],
) -> Any:
    returns = op._schema.returns
    if not all(_is_tensors(each.type) for each in returns) and op not in _SIZES:
        raise _BeyondPrograms
    names = [argument.name for argument in op._schema.arguments]
    arguments = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    operands = {name: _operand(value, values) for name, value in arguments.items()}
    results = _traced_results(op, node)
    orders = [
        _promised_order(result) if each.alias_info is None else None  # new tensors only
        for each, result in zip(returns, results, strict=False)
    ]
    compared = engine.load().checks_geometry()
    traced = [_layout(each) for each in _visible(op, results)] if compared else []
    return program.call(op._schema.name, op._schema.overload_name, operands, orders, traced)


def _traced_results(op: torch._ops.OpOverload, node: torch.fx.Node) -> list[Any]:
    """Return the traced value of each result, or an empty list if the values are unknown."""
    returns, results = op._schema.returns, node.meta.get("val")
    if len(returns) == 1:
        return [results]
    known = isinstance(results, tuple | list) and len(results) == len(returns)
    return list(results) if known else []


def _visible(op: torch._ops.OpOverload, results: list[Any]) -> list[Any]:
    """Omit a batch norm's saved statistics, because PyTorch predicts their dtype for CUDA.

    Only the backward kernel reads these statistics, and it accepts whatever the forward kernel
    returns.
    """
    return results[:1] if "batch_norm" in op._schema.name else results


def _layout(result: Any) -> tuple[torch.dtype, list[int], list[int]] | None:
    """Return the dtype, sizes and strides, with -1 for numbers that can vary between calls."""
    if not isinstance(result, torch.Tensor):
        return None
    sizes, strides = (
        [each if isinstance(each, int) else -1 for each in numbers]
        for numbers in (result.shape, result.stride())
    )
    return result.dtype, sizes, strides


def _promised_order(result: Any) -> list[int] | None:
    """Return the dimensions by decreasing stride, or None if there are gaps or unknown sizes."""
    if not isinstance(result, torch.Tensor):
        return None
    sizes, strides = _hints(result.shape), _hints(result.stride())
    if sizes is None or strides is None:
        return None
    # Dimensions of size 1 can have any stride, so they go last.
    order = [dim for dim in range(len(sizes)) if sizes[dim] != 1]
    order.sort(key=strides.__getitem__, reverse=True)
    expected = 1
    for dim in reversed(order):
        if strides[dim] != expected:
            return None
        expected *= sizes[dim]
    return order + [dim for dim in range(len(sizes)) if sizes[dim] == 1]


def _hints(numbers: Sequence[int | torch.SymInt]) -> list[int] | None:
    """Return the traced values without adding guards, or None if any of them is unknown."""
    hints = [each.node.hint if isinstance(each, torch.SymInt) else each for each in numbers]
    return None if any(hint is None for hint in hints) else hints


def _lowered_choice(program: Any, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
    """Return the slot of a result of an operator, or of an element of a list."""
    source, index = node.args
    if not isinstance(source, torch.fx.Node) or not isinstance(index, int) or index < 0:
        raise _BeyondPrograms
    if not isinstance(source.target, torch._ops.OpOverload):
        raise _BeyondPrograms
    if len(source.target._schema.returns) > 1:
        return values[source][index]
    return program.element(values[source], index)


def _is_tensors(result: Any) -> bool:
    kind = result.kind()
    return (result.getElementType().kind() if kind == "ListType" else kind) == "TensorType"


def _operand(value: Any, values: dict[torch.fx.Node, Any]) -> Any:
    if isinstance(value, torch.fx.Node):
        return values[value]
    if isinstance(value, tuple | list):
        return [_operand(item, values) for item in value]
    if isinstance(value, slice | dict | torch.SymInt):
        raise _BeyondPrograms
    return value
