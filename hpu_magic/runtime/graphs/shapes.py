"""The input shapes of a wrapped module, each of which requires its own graph."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from hpu_magic import units
from hpu_magic.runtime.device import device

# Number of shapes that triggers a warning; a program that uses buckets has only a few shapes.
MANY = 5
_SMALLEST_BUCKET = 8
# Packages that cannot contain the user's line.
_LIBRARIES = ("torch", "transformers", "hpu_magic", "habana_frameworks")

Shape = tuple[int, ...]
# The name or position of each tensor argument, and its shape.
Kind = tuple[tuple[object, Shape], ...]


@dataclass
class Use:
    """Statistics of the calls with one combination of input shapes."""

    calls: int
    memory: int  # device memory still in use after the first call, in bytes
    graphed: bool  # whether the limit allowed a graph for these shapes


class ShapeWatch:
    """Records the input shapes of a wrapped module, and warns once if there are many.

    ``limit`` is the maximum number of graphs. ``hint`` returns further advice that is appended to
    the warning. ``uses`` is in the order of the first calls.
    """

    def __init__(self, name: str, limit: int | None) -> None:
        self.name, self.limit = name, limit
        self.hint: Callable[[], str] = str
        self.uses: dict[Kind, Use] = {}
        self._warned = False

    @property
    def memory(self) -> int:
        """Estimated memory of all graphs: the bytes still in use after the first calls."""
        return sum(use.memory for use in self.uses.values())

    def around(
        self, forward: Callable[..., Any], uses_graphs: Callable[[], bool]
    ) -> Callable[..., Any]:
        """Return a wrapper of `forward` that records its calls while `uses_graphs` returns True."""
        import torch

        tensor, uses = torch.Tensor, self.uses

        @functools.wraps(forward)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("bypass_hpu_graphs") or not uses_graphs():
                return forward(*args, **kwargs)
            named = [*enumerate(args), *kwargs.items()] if args else kwargs.items()
            kind = tuple(
                [(name, value.shape) for name, value in named if isinstance(value, tensor)]
            )
            use = uses.get(kind)
            if use is not None:
                use.calls += 1
                return forward(*args, **kwargs)
            return self._first(kind, forward, args, kwargs)

        return watched

    def forget(self) -> None:
        """Forget all shapes once the graphs have been freed."""
        self.uses.clear()

    def _first(self, kind: Any, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        device.synchronize()
        before = device.in_use()
        result = forward(*args, **kwargs)
        device.synchronize()
        memory = max(0, device.in_use() - before)
        graphed = self.limit is None or len(self.uses) < self.limit
        self.uses[kind] = Use(1, memory if graphed else 0, graphed)
        if len(self.uses) >= MANY and not self._warned:
            self._warned = True
            warnings.warn(self.sentence(), stacklevel=users_level())
        return result

    def sentence(self) -> str:
        """Return a warning that lists the shapes and their graphs' memory, and suggests padding."""
        name, shapes = self._most_varied()
        listed = ", ".join(str(shape) for shape in shapes)
        memory = units.size(self.memory)
        if all(use.graphed for use in self.uses.values()):
            cost = f"each shape needs its own capture and its own graph ({memory} so far)"
        else:
            cost = (
                f"{self.limit} of them have graphs ({memory}), while the others run without graphs"
            )
        bucket = _bucket(shapes)
        return (
            f"{self.name} was called with {len(self.uses)} different input shapes ({name} "
            f"{listed}), and {cost}: pad the inputs {bucket}{self.hint()}."
        )

    def _most_varied(self) -> tuple[str, list[Shape]]:
        """Return the name of the tensor with the largest number of shapes, and its shapes."""
        shapes: dict[str, dict[Shape, None]] = {}
        for kind in self.uses:
            for name, shape in kind:
                shapes.setdefault(_named(name), {})[tuple(shape)] = None
        name = max(
            shapes,
            key=lambda name: (len(shapes[name]), name.startswith("input")),
            default="no tensors",
        )
        return name, list(shapes.get(name, ()))


def described(kind: Kind) -> str:
    """Return a description of one combination of inputs, with their names and shapes."""
    return ", ".join(f"{_named(name)} {tuple(shape)}" for name, shape in kind) or "no tensors"


def _named(name: Any) -> str:
    return f"input {name}" if isinstance(name, int) else str(name)


def _bucket(shapes: list[Shape]) -> str:
    """Suggest padding that leaves at most two sizes in the dimension with the most sizes."""
    if len({len(shape) for shape in shapes}) != 1:
        return "to a few sizes"
    sizes = max((set(sizes) for sizes in zip(*shapes, strict=True)), key=len, default=set())
    if len(sizes) < 2:
        return "to a few sizes"
    axis = [set(each) for each in zip(*shapes, strict=True)].index(sizes)
    step = _SMALLEST_BUCKET
    while 2 * step < max(sizes):
        step *= 2
    left = {-(-size // step) for size in sizes}
    return (
        f"in dimension {axis} to multiples of {step}, which reduces the {len(sizes)} sizes to "
        f"{len(left)}"
    )


def users_level() -> int:
    """Return the ``stacklevel`` with which `warnings.warn` reports the user's line."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _LIBRARIES:
            return level
        frame, level = frame.f_back, level + 1
    return 1
