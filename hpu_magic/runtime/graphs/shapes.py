"""The shapes that a wrapped module is called with: each is captured anew, and keeps its graph."""

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

# Shapes before the user is told: buckets of a model in use are a few.
MANY = 5
_SMALLEST_BUCKET = 8
# The user's line lies outside of these.
_NOT_THE_USERS = ("torch", "transformers", "hpu_magic", "habana_frameworks")

Shape = tuple[int, ...]
# Of each tensor the name, or the place of an argument, and the shape.
Kind = tuple[tuple[object, Shape], ...]


@dataclass
class Use:
    """Calls with inputs of one kind.

    Attributes
    ----------
    calls : int
        How many.
    memory : int
        Bytes of device memory that the first of them left in use.
    graphed : bool
        There was room for one more graph.
    """

    calls: int
    memory: int
    graphed: bool


class ShapeWatch:
    """Notes the shapes of a wrapped module's tensors, and warns once when there are many.

    Parameters
    ----------
    name : str
        What the module is called.
    limit : int or None
        Most graphs that are kept.

    Attributes
    ----------
    hint : callable
        Returns what else helps against many shapes, to end the warning's sentence with.
    uses : dict of Kind to Use
        By names and shapes of the tensors, in the order in which they first came.
    """

    def __init__(self, name: str, limit: int | None) -> None:
        self.name, self.limit = name, limit
        self.hint: Callable[[], str] = str
        self.uses: dict[Kind, Use] = {}
        self._told = False

    @property
    def memory(self) -> int:
        """Bytes that graphs keep, as far as the first calls tell."""
        return sum(use.memory for use in self.uses.values())

    def around(self, forward: Callable[..., Any], served: Callable[[], bool]) -> Callable[..., Any]:
        """Return `forward` with its calls noted, as long as `served` says that graphs serve it."""
        import torch

        tensor, uses = torch.Tensor, self.uses

        @functools.wraps(forward)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("bypass_hpu_graphs") or not served():
                return forward(*args, **kwargs)
            named = [*enumerate(args), *kwargs.items()] if args else kwargs.items()
            kind = tuple([(name, one.shape) for name, one in named if isinstance(one, tensor)])
            use = uses.get(kind)
            if use is not None:
                use.calls += 1
                return forward(*args, **kwargs)
            return self._first(kind, forward, args, kwargs)

        return watched

    def forget(self) -> None:
        """Begin anew, since the graphs are gone."""
        self.uses.clear()

    def _first(self, kind: Any, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        before = _in_use()
        result = forward(*args, **kwargs)
        memory = max(0, _in_use() - before)
        graphed = self.limit is None or len(self.uses) < self.limit
        self.uses[kind] = Use(1, memory if graphed else 0, graphed)
        if len(self.uses) >= MANY and not self._told:
            self._told = True
            warnings.warn(self.sentence(), stacklevel=users_level())
        return result

    def sentence(self) -> str:
        """Say which shapes came, what each costs, and how to have fewer."""
        name, shapes = self._most_varied()
        shown = ", ".join(str(shape) for shape in shapes)
        memory = units.size(self.memory)
        if all(use.graphed for use in self.uses.values()):
            cost = f"each is captured anew into a graph that keeps its memory, {memory} so far"
        else:
            cost = f"{self.limit} of them have a graph, with {memory}, and the others run without"
        bucket = _bucket(shapes)
        return (
            f"{self.name} came with inputs of {len(self.uses)} shapes ({name} {shown}), and "
            f"{cost}: bucket them by padding {bucket}{self.hint()}."
        )

    def _most_varied(self) -> tuple[str, list[Shape]]:
        """Return the tensor that came in most shapes, and these."""
        shapes: dict[str, dict[Shape, None]] = {}
        for kind in self.uses:
            for name, shape in kind:
                shapes.setdefault(_named(name), {})[tuple(shape)] = None
        name = max(
            shapes,
            key=lambda one: (len(shapes[one]), one.startswith("input")),
            default="no tensors",
        )
        return name, list(shapes.get(name, ()))


def described(kind: Kind) -> str:
    """Return the names and shapes of a kind of inputs."""
    return ", ".join(f"{_named(name)} {tuple(shape)}" for name, shape in kind) or "no tensors"


def _named(name: Any) -> str:
    return f"input {name}" if isinstance(name, int) else str(name)


def _bucket(shapes: list[Shape]) -> str:
    """Say to which sizes to pad so that of these shapes at most two are left in a dimension."""
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
        f"dimension {axis} to multiples of {step}, which leaves {len(left)} of {len(sizes)} sizes"
    )


def _in_use() -> int:
    device.synchronize()
    import torch

    return int(torch.hpu.memory_stats()["InUse"])


def users_level() -> int:
    """Return the stack level, as `warnings.warn` counts for its caller, of the user's line."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _NOT_THE_USERS:
            return level
        frame, level = frame.f_back, level + 1
    return 1
