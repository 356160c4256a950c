"""What one step of a model runs: operations in their order, and the memory they use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import torch

NEVER = -1


class Phase(StrEnum):
    """The part of a step that an operation belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTED = "recomputed"  # forward once more, within backward
    OPTIMIZER = "optimizer"


class Role(StrEnum):
    """What a storage holds."""

    WEIGHTS = "weights"
    BUFFERS = "buffers"
    INPUTS = "inputs"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"
    CACHE = "cache"  # keys and values of earlier tokens
    LOGITS = "logits"


@dataclass(slots=True)
class Storage:
    """Memory of the card: from the operation that makes it to the one behind which it is gone."""

    bytes: int
    """What it takes where a card keeps int64 whole."""
    role: Role = Role.TEMPORARY
    module: str = ""
    dtype: torch.dtype | None = None
    """Type of the first tensor that lies in it."""
    born: int = NEVER
    """Index of the operation that makes it; `NEVER` if it is there before the first."""
    last_used: int = NEVER
    """Index of the last operation that reads or writes it, other than to describe it anew."""
    continues: int | None = None
    """Index of the storage whose memory it takes over where operations run at once: there, autograd
    sums gradients in place."""
    freed: int | None = None
    """Number of operations that have begun when nobody refers to it any more; None if it stays."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that an operation reads or writes."""

    storage: int
    """Index into the program's storages."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int
    """What of the storage it covers at most; an expanded tensor covers less than its elements."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(slots=True)
class Operation:
    """A call of one operator on tensors of the card."""

    operator: torch._ops.OpOverload
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    is_view: bool
    """It describes memory anew and moves none."""
    module: str
    phase: Phase
    arguments: tuple[object, ...] = ()
    """Positional arguments as given, with None in the place of tensors."""
    times: int = 1
    """How often it runs in a step: one optimizer's step stands for all tensors of its shape."""

    def __reduce__(self) -> tuple[Any, ...]:
        # PyTorch's operators cannot be pickled, and are found again by their names.
        name, overload = self.operator._schema.name, self.operator._overloadname
        values = [getattr(self, one.name) for one in fields(self)[1:]]
        return _operation, (name, overload, *values)


def _operation(name: str, overload: str, *values: Any) -> Operation:
    library, _, operator = name.partition("::")
    return Operation(getattr(getattr(getattr(torch.ops, library), operator), overload), *values)


@dataclass(slots=True)
class Program:
    """One step: operations, storages, and what each parameter is."""

    operations: list[Operation] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    classes: dict[str, str] = field(default_factory=dict)
    """Name of each module's class, by its path; the model itself is at the empty path."""
    samples: int = 0
    """Size of the first dimension of the inputs."""
    tokens: int = 0
    """Elements of the first input of integers, such as token ids; 0 without one."""

    def of_role(self, role: Role) -> int:
        """Return the bytes of all storages of a role."""
        return sum(storage.bytes for storage in self.storages if storage.role is role)

    def of_phase(self, *phases: Phase) -> Iterator[Operation]:
        """Yield the operations of some phases."""
        return (operation for operation in self.operations if operation.phase in phases)
