"""Track a module's forward passes, which activation checkpointing may recompute in backward."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from habana_frameworks.torch.hpex.experimental.transformer_engine import _saved_tensor_hooks
from habana_frameworks.torch.hpex.experimental.transformer_engine.recipe import DelayedScaling

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.weak import WeakIdKeyDictionary

_saved_tensor_hooks.track()


@dataclass
class Use:
    """Settings for a module's forward pass and the corresponding backward pass.

    Attributes
    ----------
    scale, hybrid_scale : torch.Tensor
        Scales for the forward pass, and for casts to the dtype of the gradients. The scales are
        copies, because later steps change the module's scales.
    step : object
        The outermost region.
    updates : bool
        Whether the step computes scales from earlier measurements.
    measures, measures_forward : bool
        Whether to measure gradients, and whether to measure inputs and weights. `measures_forward`
        is False when activation checkpointing recomputes the forward pass.
    has_backward : bool
        Whether autograd records the forward pass.
    group : torch.distributed.ProcessGroup or None
        Processes that share measurements; None means all processes.
    weight : object
        The FP8 weight, if several forward passes share it.
    """

    recipe: DelayedScaling
    scale: torch.Tensor
    hybrid_scale: torch.Tensor | None
    step: object
    updates: bool
    measures: bool
    measures_forward: bool
    has_backward: bool
    out_dtype: torch.dtype
    group: Any
    weight: Any = None


class Uses:
    """Stores each `Use` of a module that may be recomputed, or None for a forward pass without FP8.

    Each `Use` is stored with its checkpointed region for as long as the autograd graph refers to
    the region. A reentrant checkpoint is a node in the graph. With other checkpoints, saved tensors
    refer to the hook that recomputes them.
    """

    def __init__(self) -> None:
        self._regions = WeakIdKeyDictionary()  # values: _Repeats
        self._latest: Use | None = None

    def note(self, use: Use | None) -> None:
        """Store the `Use` of the forward pass that is starting now."""
        self._latest = use
        for region in (*_hooks(), *_functions()):
            self._regions.setdefault(region, _Repeats()).uses.append(use)

    def repeated(self) -> Use | None:
        """Return the `Use` of the forward pass that backward is currently recomputing.

        Returns the latest `Use` if backward is not recomputing a region that contains this module.
        """
        region = next(filter(None, map(self._region_of, _stack())), None)
        use = self._latest if region is None else region.next()
        self.note(use)  # a nested checkpoint may recompute the pass again
        return use

    def _region_of(self, frame: FrameType) -> _Repeats | None:
        first = _first_argument(frame)
        if isinstance(first, BackwardCFunction):
            return self._regions.get(first)
        for hook, repeats in self._regions.items():
            if _runs(frame, hook):
                return repeats
        return None

    def __reduce__(self) -> tuple[type[Uses], tuple[()]]:
        """Return an empty object, because a copied module has no pending backward pass."""
        return Uses, ()


class _Repeats:
    """The list of each `Use` of a module in one region, in the order of their recomputation."""

    def __init__(self) -> None:
        self.uses: list[Use | None] = []
        self._task, self._repeated = -1, 0

    def next(self) -> Use | None:
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task, self._repeated = task, 0
        self._repeated += 1
        return self.uses[min(self._repeated, len(self.uses)) - 1]


def _hooks() -> list[Callable[[Any], torch.Tensor]]:
    """Return the active saved-tensor hooks of activation checkpointing.

    Other hooks, such as those that offload saved tensors, may stay active throughout training.
    """
    return [
        unpack
        for _, unpack in _saved_tensor_hooks.active()
        if "checkpoint" in _full_name(unpack).lower()
    ]


def _full_name(function: object) -> str:
    return ".".join(str(getattr(function, name, "")) for name in ("__module__", "__qualname__"))


def _functions() -> list[BackwardCFunction]:
    """Return the autograd functions whose ``forward``, which disables autograd, is running."""
    if torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return []
    within = (_first_argument(frame) for frame in _stack() if frame.f_code.co_name == "forward")
    return [first for first in within if isinstance(first, BackwardCFunction)]


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _first_argument(frame: FrameType) -> object:
    code = frame.f_code
    if not code.co_argcount or code.co_varnames[0] == "self":
        return None  # reading f_locals could keep the local variables of a forward method alive
    return frame.f_locals.get(code.co_varnames[0])


def _runs(frame: FrameType, function: object) -> bool:
    """Return whether a frame executes this function, not another closure with the same code."""
    code = getattr(function, "__code__", None)
    if code is not frame.f_code:
        return False
    values = (cell.cell_contents for cell in function.__closure__ or ())
    names = code.co_freevars
    return all(frame.f_locals[name] is value for name, value in zip(names, values, strict=True))
