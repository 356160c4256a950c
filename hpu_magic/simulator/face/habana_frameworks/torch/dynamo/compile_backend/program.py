"""Captured graphs as programs of the engine, which runs them without Python in between."""

from __future__ import annotations

import operator
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
    """A node that only Python can run."""


def program_of(graph: torch.fx.Graph) -> Any:
    """Return the graph as a program; its ``run`` takes a list of inputs, which it empties.

    None where the graph holds more than operators and arithmetic on sizes: higher-order
    operators, for example, or constants of its own.
    """
    native = engine.load()
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
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
            elif node.op != "placeholder":
                return None
    except _BeyondPrograms:
        return None
    return program


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
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    operands = {name: _operand(value, values) for name, value in given.items()}
    return program.call(op._schema.name, op._schema.overload_name, operands)


def _lowered_choice(program: Any, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
    """One of several results of an operator, or an element of its only result, a list."""
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
    if kind == "ListType":
        kind = result.getElementType().kind()
    return bool(kind == "TensorType")


def _operand(value: Any, values: dict[torch.fx.Node, Any]) -> Any:
    if isinstance(value, torch.fx.Node):
        return values[value]
    if isinstance(value, tuple | list):
        return [_operand(item, values) for item in value]
    if isinstance(value, slice | dict | torch.SymInt):
        raise _BeyondPrograms
    return value
