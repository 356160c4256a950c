"""Find out to how many experts each token of a traced model is routed."""

from __future__ import annotations

from math import prod

from hpu_magic.estimates.tracing.program import Operand, Operation, Program

GROUPED = "aten::_grouped_mm"


def is_grouped(operation: Operation) -> bool:
    """Return whether an operation multiplies each group of rows by the matrix of its expert."""
    return operation.operator._schema.name == GROUPED


def sums_groups(operation: Operation) -> bool:
    """Return whether a grouped matmul adds up the rows of each group, as for gradients."""
    left, right = operation.reads[:2]
    return len(left.shape) == len(right.shape) == 2


def rows_of(operation: Operation) -> int:
    """Return the number of rows that a grouped matmul divides into groups."""
    left, right = operation.reads[:2]
    if len(left.shape) == 3:
        return right.shape[1]
    return left.shape[1] if len(right.shape) == 2 else left.shape[0]


def matrices_of_experts(operation: Operation) -> Operand:
    """Return the operand or result of a grouped matmul that has one matrix per expert."""
    left, right = operation.reads[:2]
    if sums_groups(operation):
        return operation.writes[0]
    return left if len(left.shape) == 3 else right


def count_choices(program: Program) -> None:
    """Set `choices` of each grouped matmul.

    A router selects the experts of each token with `topk`, whose result has one element for each
    row of the grouped matmuls that follow.
    """
    choices: dict[int, int] = {}
    for operation in program.operations:
        if operation.operator._schema.name == "aten::topk":
            shape = operation.writes[0].shape
            choices[prod(shape)] = shape[-1] if shape else 1
        elif is_grouped(operation):
            operation.choices = float(choices.get(rows_of(operation), 1))
