"""Distribute the experts of a traced model across cards.

Each card stores some of the experts. A card sends each token to the cards of the token's experts,
computes its own experts for the tokens of all cards, and sends the results back. The backward pass
exchanges the gradients in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil, prod

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.layout import Layout
from hpu_magic.estimates.tracing.program import Operand, Operation, Phase, Program, Role, Storage
from hpu_magic.estimates.tracing.routing import (
    is_grouped,
    matrices_of_experts,
    rows_of,
    sums_groups,
)

_OF_MODULES = (Role.WEIGHTS, Role.BUFFERS, Role.GRADIENTS)
_OF_TOKENS = (Role.ACTIVATIONS, Role.TEMPORARY)


def on_busiest_card(program: Program, layout: Layout) -> Program:
    """Return the program of the card whose experts process the most tokens.

    Raises `EstimateError` if the model has no experts or cannot distribute them across this number
    of cards.
    """
    if layout.experts == 1:
        return program
    experts = _Experts.of(program)
    name = program.classes.get("", "The model")
    if not experts.counts:
        raise EstimateError(
            f"{name} has no experts that an estimate can distribute, but "
            f"expert_parallel={layout.experts}: omit it. Experts are weights of grouped matmuls, "
            'like those of transformers with experts_implementation="grouped_mm".'
        )
    for count in experts.counts:
        if count % layout.experts:
            raise EstimateError(
                f"{name} has {count} experts in a layer, which expert_parallel={layout.experts} "
                f"cannot divide equally: use a divisor of {count}."
            )
    return _Distribution(program, layout, experts).program()


@dataclass
class _Experts:
    """The experts of a program."""

    counts: set[int] = field(default_factory=set)
    """The different numbers of experts per layer."""
    storages: dict[int, int] = field(default_factory=dict)
    """Maps each storage with one part per expert to the number of experts."""

    @classmethod
    def of(cls, program: Program) -> _Experts:
        found, modules = cls(), dict[str, int]()
        for operation in filter(is_grouped, program.operations):
            matrices = matrices_of_experts(operation)
            storage = program.storages[matrices.storage]
            count = matrices.shape[0]
            found.storages[matrices.storage] = count
            if not sums_groups(operation):
                found.counts.add(count)
                weights = storage.role is Role.WEIGHTS
                modules[storage.module if weights else operation.module] = count
        for number, storage in enumerate(program.storages):
            if storage.role in _OF_MODULES and storage.module in modules:
                found.storages[number] = modules[storage.module]
        found._add_states(program)
        return found

    def _add_states(self, program: Program) -> None:
        """Add the optimizer's tensors that have the size of an expert's parameter."""
        sizes = {each.elements for each in program.parameters if each.weight in self.storages}
        for operation in program.of_phase(Phase.OPTIMIZER):
            for operand in (*operation.reads, *operation.writes):
                if operand.elements in sizes and operand.shape[0] in self.counts:
                    self.storages[operand.storage] = operand.shape[0]


class _Distribution:
    """One card's part of a program whose experts are distributed across `layout.experts` cards."""

    def __init__(self, program: Program, layout: Layout, experts: _Experts) -> None:
        self._program, self._layout, self._experts = program, layout, experts
        self._storages = [replace(each) for each in program.storages]
        for number in experts.storages:
            storage = self._storages[number]
            storage.bytes = ceil(storage.bytes / layout.experts)
            storage.of_experts = True
        self._enlarged: set[int] = set()

    def program(self) -> Program:
        """Return the program of the busiest card."""
        operations = [self._of_experts(each, 0) for each in self._program.operations]
        sizes: dict[str, int] = {}  # maps each module to the number of bytes in its tokens
        for numbers in _calls(self._program):
            first = self._program.operations[numbers[0]]
            rows = rows_of(first)
            for number in numbers:
                operations[number] = self._of_experts(self._program.operations[number], rows)
                self._enlarge(number, rows)
            tokens = first.reads[0].bytes
            size = sizes.setdefault(first.module, tokens)
            for number in (numbers[0], numbers[-1]):
                self._exchange(operations[number], number, size)
        return replace(self._program, operations=operations, storages=self._storages)

    def _of_experts(self, operation: Operation, rows: int) -> Operation:
        """Return an operation with the experts and, unless `rows` is 0, the rows of one card."""
        result = replace(
            operation,
            reads=tuple(self._operand(each, rows) for each in operation.reads),
            writes=tuple(self._operand(each, rows) for each in operation.writes),
        )
        if is_grouped(operation):
            result.choices = operation.choices / self._layout.experts
        return result

    def _operand(self, operand: Operand, rows: int) -> Operand:
        count, cards = self._experts.storages.get(operand.storage), self._layout.experts
        if count is not None:
            shape = _with_size(operand.shape, count, count // cards)
            return replace(operand, shape=shape, bytes=ceil(operand.bytes / cards))
        if rows and rows in operand.shape:
            shape = _with_size(operand.shape, rows, self._busiest(rows))
            enlarged = operand.bytes * prod(shape) // max(prod(operand.shape), 1)
            return replace(operand, shape=shape, bytes=enlarged)
        return operand

    def _busiest(self, rows: int) -> int:
        return ceil(rows * self._layout.imbalance)

    def _enlarge(self, number: int, rows: int) -> None:
        """Enlarge the storages that hold the rows read or written by an operation."""
        operation = self._program.operations[number]
        for operand in (*operation.reads, *operation.writes):
            at, storage = operand.storage, self._storages[operand.storage]
            done = storage.of_experts or at in self._enlarged
            if not done and rows in operand.shape and storage.role in _OF_TOKENS:
                storage.bytes = storage.bytes * self._busiest(rows) // rows
                self._enlarged.add(at)

    def _exchange(self, operation: Operation, number: int, size: int) -> None:
        """Add the exchange of tokens to an operation, and a buffer for the tokens of this card."""
        operation.routed += (ceil(size * self._layout.imbalance),)
        dtype = operation.reads[0].dtype
        self._storages.append(
            Storage(size, Role.TEMPORARY, operation.module, dtype, number, number, freed=number + 1)
        )


def _calls(program: Program) -> Iterator[list[int]]:
    """Yield the operations of each call of experts, from the first grouped matmul to the last."""
    inside: list[int] = []
    last: Operation | None = None
    for number, operation in enumerate(program.operations):
        if last is not None and not _continues(operation, last):
            yield inside
            inside, last = [], None
        if is_grouped(operation):
            first = inside[0] if inside else number
            inside, last = list(range(first, number + 1)), operation
    if inside:
        yield inside


def _continues(operation: Operation, last: Operation) -> bool:
    """Return whether an operation is in the same module and phase as a grouped matmul."""
    within = operation.module == last.module or operation.module.startswith(f"{last.module}.")
    return within and operation.phase is last.phase


def _with_size(shape: tuple[int, ...], before: int, after: int) -> tuple[int, ...]:
    """Replace the first dimension of this size; return the shape if there is none."""
    at = next((at for at, size in enumerate(shape) if size == before), None)
    return shape if at is None else (*shape[:at], after, *shape[at + 1 :])
