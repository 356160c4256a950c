"""Operators of a pipeline, which form a graph and run in the order of their dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

ON_CARD = ("hpu", "legacy", "mixed", "gaudi", "gaudi2", "gaudi3")


class Value(NamedTuple):
    """The value of an operator's output for one batch, on the host."""

    data: Any  # a tensor in PyTorch's order of dimensions, or a list of encoded images
    interleaved: bool = False  # whether the colors are the last dimension of a batch of images


@dataclass(frozen=True)
class Edge:
    """An output of an operator in the graph; it has no value until a batch is computed."""

    operator: Operator
    index: int


class Settings(NamedTuple):
    """The settings of a pipeline that its operators need."""

    batch_size: int


class Operator:
    """An operator of the graph; a subclass defines `compute`, and `outputs` if it has several.

    Parameters
    ----------
    device : str, optional
        Where the operator runs on a real card: ``"cpu"`` or ``"hpu"``. The simulator computes all
        operators on the host, and copies the outputs of the pipeline to the device.

    Raises
    ------
    ValueError
        `device` is unknown.
    """

    outputs = 1
    inputs: tuple[int, ...] = (1,)  # supported numbers of inputs

    def __init__(self, device: str | None = None) -> None:
        require_device(device, type(self).__name__)
        self.edges: tuple[Edge, ...] = ()
        self.settings = Settings(1)

    def __call__(self, *edges: Edge) -> Any:
        """Connect the operator to its inputs, and return its output or a tuple of its outputs."""
        name = type(self).__name__
        if len(edges) not in self.inputs:
            expected = " or ".join(map(str, self.inputs))
            raise ValueError(f"{name} was called with {len(edges)} inputs; pass {expected}.")
        for edge in edges:
            if not isinstance(edge, Edge):
                raise TypeError(
                    f"{name} was called with a {type(edge).__name__}; pass an operator's output."
                )
        self.edges = edges
        made = tuple(Edge(self, index) for index in range(self.outputs))
        return made[0] if len(made) == 1 else made

    def prepare(self, settings: Settings) -> None:
        """Read the pipeline's settings before the first batch."""
        self.settings = settings

    def compute(self, *values: Value) -> tuple[Value, ...]:
        """Return the outputs for a batch."""
        raise NotImplementedError


class Reader(Operator):
    """An operator without inputs that starts each epoch and ends it with ``StopIteration``."""

    inputs = (0,)

    def start(self) -> None:
        """Start an epoch."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        raise NotImplementedError


def require_device(device: str | None, name: str) -> None:
    """Raise a `ValueError` if `device` is not a device of the media pipeline."""
    if device is None or device == "cpu" or device.partition(":")[0] in ON_CARD:
        return
    raise ValueError(f"device={device!r} of {name} is unknown; use 'cpu', 'mixed' or 'hpu'.")


def operators_of(edges: tuple[Edge, ...]) -> Iterator[Operator]:
    """Yield the operators that the outputs depend on, each once and after its inputs."""
    seen: set[Operator] = set()

    def visit(operator: Operator) -> Iterator[Operator]:
        if operator in seen:
            return
        seen.add(operator)
        for edge in operator.edges:
            yield from visit(edge.operator)
        yield operator

    for edge in edges:
        yield from visit(edge.operator)


def generator(seed: int | None) -> np.random.Generator:
    """Return a random number generator for a seed, by default that of `torch.manual_seed`."""
    return np.random.default_rng(seed_or_default(seed))


def seed_or_default(seed: int | None) -> int:
    """Return `seed`, or the seed of `torch.manual_seed` if it is None (an assumption)."""
    return torch.initial_seed() if seed is None else int(seed)


def as_tensor(value: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a host tensor with the elements of a NumPy array, a list or a tensor."""
    if isinstance(value, torch.Tensor):
        found = value.cpu()
    else:
        array = np.asarray(value)
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            array = array.astype(array.dtype.name[1:])
        found = torch.as_tensor(np.ascontiguousarray(array))
    return found if dtype is None else found.to(dtype)
