"""The program of a step: its operations in order, and the storages that they use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import torch

NEVER = -1
_RECURRENT = frozenset({"RNN", "GRU", "LSTM"})  # classes of `torch.nn`
# Cards do not support these dtypes and store each element at half its size.
_NARROWED = frozenset({torch.float64, torch.complex128})


class Phase(StrEnum):
    """The part of a step that an operation belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTED = "recomputed"  # parts of the forward pass that the backward pass repeats
    OPTIMIZER = "optimizer"


class Role(StrEnum):
    """The kind of data that a storage contains."""

    WEIGHTS = "weights"
    BUFFERS = "buffers"
    INPUTS = "inputs"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"
    CACHE = "cache"  # the keys and values of previous tokens
    LOGITS = "logits"
    EXCHANGED = "exchanged"  # buffers for exchanging gradients and weights


@dataclass(slots=True)
class Storage:
    """A block of memory on the card, and its lifetime."""

    bytes: int
    """Size in bytes, assuming that the card stores int64 values in 64 bits."""
    role: Role = Role.TEMPORARY
    module: str = ""
    dtype: torch.dtype | None = None
    """Dtype of the first tensor in the storage."""
    born: int = NEVER
    """Index of the operation that creates the storage; `NEVER` if it exists at the start."""
    last_used: int = NEVER
    """Index of the last operation that reads or writes the storage, not counting views."""
    continues: int | None = None
    """Index of the storage whose memory this storage reuses if operations run immediately, because
    autograd then adds gradients in place."""
    freed: int | None = None
    """Number of operations recorded when the storage was released; None if it is kept."""
    of_experts: bool = False
    """Whether the storage belongs to experts that several cards share."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that an operation reads or writes."""

    storage: int
    """Index of the storage in the program."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int
    """Number of bytes that the tensor covers in its storage; an expanded tensor covers fewer bytes
    than its elements would need."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(slots=True)
class Operation:
    """An operator call with tensors on the card."""

    operator: torch._ops.OpOverload
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    is_view: bool
    """Whether the operation only creates a view."""
    module: str
    phase: Phase
    arguments: tuple[object, ...] = ()
    """Positional arguments, in which tensors are replaced by None."""
    times: int = 1
    """Number of runs per step; optimizers are traced once for all tensors of the same shape."""
    choices: float = 1.0
    """Number of groups to which a grouped matmul's tokens are routed, such as experts per token."""
    routed: tuple[int, ...] = ()
    """Size in bytes of each exchange of tokens with the cards of other experts."""
    node: int = NEVER
    """Sequence number of the autograd node that the operation creates or, in the backward pass, the
    node that runs; `NEVER` if it is unknown."""
    call: int = NEVER
    """Index in `Program.calls` of the call that runs the operation; `NEVER` if it is unknown."""

    def __reduce__(self) -> tuple[Any, ...]:
        # PyTorch's operators cannot be pickled, so they are looked up by name.
        name, overload = self.operator._schema.name, self.operator._overloadname
        values = [getattr(self, each.name) for each in fields(self)[1:]]
        return _operation, (name, overload, *values)


def _operation(name: str, overload: str, *values: Any) -> Operation:
    return Operation(operator_named(name, overload), *values)


def operator_named(name: str, overload: str) -> torch._ops.OpOverload:
    """Return an operator by its name, such as ``"aten::add"``, and the name of its overload."""
    library, _, operator = name.partition("::")
    found: torch._ops.OpOverload = getattr(getattr(getattr(torch.ops, library), operator), overload)
    return found


def card_bytes(dtype: torch.dtype, elements: int) -> int:
    """Return the size of elements in bytes on a card, assuming that it stores int64 in 64 bits."""
    return elements * dtype.itemsize // (2 if dtype in _NARROWED else 1)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the model."""

    name: str
    elements: int
    weight: int
    """Index of the storage that contains the weight."""
    gradient: int | None = None
    """Index of the storage that contains the gradient, or None."""
    group: int = 0
    """Index of the optimizer's parameter group."""
    trained: bool = True


@dataclass(slots=True)
class Program:
    """The operations and storages of one step."""

    operations: list[Operation] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    """The parameters of the model in a training step, in the model's order."""
    classes: dict[str, str] = field(default_factory=dict)
    """Maps the path of each module to its class name; the path of the model itself is empty."""
    samples: int = 0
    """Size of the first dimension of the inputs."""
    tokens: int = 0
    """Number of tokens in the inputs; 0 if the inputs are images or other signals."""
    calls: list[set[int]] = field(default_factory=list)
    """The calls of PyTorch functions in a forward pass that is compiled for training: the storages
    of the parameters that are arguments of each call."""

    def of_role(self, role: Role) -> int:
        """Return the total size in bytes of all storages with this role."""
        return sum(storage.bytes for storage in self.storages if storage.role is role)

    def not_compiled(self) -> set[str]:
        """Return the paths of modules that `torch.compile` runs in eager mode.

        Dynamo does not compile a function that uses a recurrent module, because its option
        ``allow_rnn`` is off by default.
        """
        found = (name for name, kind in self.classes.items() if kind in _RECURRENT)
        return {name.rpartition(".")[0] for name in found}

    def of_phase(self, *phases: Phase) -> Iterator[Operation]:
        """Yield the operations that belong to any of these phases."""
        return (operation for operation in self.operations if operation.phase in phases)
