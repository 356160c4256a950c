"""The program of a step: operations in order, and their storages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import torch

NEVER = -1


class Phase(StrEnum):
    """The part of a step to which an operation belongs."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTED = "recomputed"  # the forward pass again, in the backward pass
    OPTIMIZER = "optimizer"


class Role(StrEnum):
    """The contents of a storage."""

    WEIGHTS = "weights"
    BUFFERS = "buffers"
    INPUTS = "inputs"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"
    CACHE = "cache"  # keys and values of previous tokens
    LOGITS = "logits"


@dataclass(slots=True)
class Storage:
    """Memory on the card with its lifetime."""

    bytes: int
    """Bytes if a card stores int64 with 64 bits."""
    role: Role = Role.TEMPORARY
    module: str = ""
    dtype: torch.dtype | None = None
    """Type of its first tensor."""
    born: int = NEVER
    """Index of the operation that creates it; `NEVER` if it exists before the first operation."""
    last_used: int = NEVER
    """Index of the last operation that reads or writes it, except for views."""
    continues: int | None = None
    """Index of the storage whose memory it reuses if operations run immediately, because autograd
    then sums gradients in place."""
    freed: int | None = None
    """Number of operations before the last reference was deleted; None if it remains."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that an operation reads or writes."""

    storage: int
    """Index into the program's storages."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int
    """The bytes of the storage that it covers; an expanded tensor covers less than its elements."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(slots=True)
class Operation:
    """A call of an operator on tensors of the card."""

    operator: torch._ops.OpOverload
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    is_view: bool
    """Whether it only creates a view."""
    module: str
    phase: Phase
    arguments: tuple[object, ...] = ()
    """Positional arguments, with None instead of tensors."""
    times: int = 1
    """Number of runs in a step: an optimizer runs once for all tensors of a shape."""

    def __reduce__(self) -> tuple[Any, ...]:
        # PyTorch's operators cannot be pickled, so they are looked up by name.
        name, overload = self.operator._schema.name, self.operator._overloadname
        values = [getattr(self, each.name) for each in fields(self)[1:]]
        return _operation, (name, overload, *values)


def _operation(name: str, overload: str, *values: Any) -> Operation:
    library, _, operator = name.partition("::")
    return Operation(getattr(getattr(getattr(torch.ops, library), operator), overload), *values)


@dataclass(slots=True)
class Program:
    """The operations and storages of one step."""

    operations: list[Operation] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    classes: dict[str, str] = field(default_factory=dict)
    """Name of each module's class, by its path; the path of the model is empty."""
    samples: int = 0
    """Size of the first dimension of the inputs."""
    tokens: int = 0
    """Number of elements of the first integer input, such as token ids; 0 if there is none."""

    def of_role(self, role: Role) -> int:
        """Return the bytes of all storages of a role."""
        return sum(storage.bytes for storage in self.storages if storage.role is role)

    def of_phase(self, *phases: Phase) -> Iterator[Operation]:
        """Yield the operations of some phases."""
        return (operation for operation in self.operations if operation.phase in phases)
