"""Which forward pass of a module a checkpointed one repeats within backward."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from habana_frameworks.torch.hpex.experimental.transformer_engine.recipe import DelayedScaling

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.weak import WeakIdKeyDictionary


@dataclass
class Use:
    """How one forward pass of a module computes, and the backward pass that belongs to it.

    Attributes
    ----------
    recipe : DelayedScaling
    scale : torch.Tensor
        Scales of the forward pass; later steps change the module's own.
    hybrid_scale : torch.Tensor or None
        Those for casts to the type of the gradients.
    step : object
        The outermost region.
    updates : bool
        Whether scales follow in this step what earlier ones measured.
    measures : bool
        Whether the gradients are measured.
    measures_forward : bool
        Whether inputs and weights are: not where a checkpointed forward pass runs again.
    has_backward : bool
        Whether autograd records it.
    out_dtype : torch.dtype
    group : torch.distributed.ProcessGroup or None
        The processes that agree on what is measured, None for all.
    weight : object
        The weight in 8 bits, if forward passes share it.
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
    """The uses of a module that checkpoints may repeat, None for those without 8 bits.

    Each is kept with the checkpointed region that it is in, for as long as autograd's graph keeps
    the region: a reentrant checkpoint is a node of the graph, and the saved tensors of the others
    keep the hook that computes them again.
    """

    def __init__(self) -> None:
        self._regions = WeakIdKeyDictionary()  # to the region's _Repeats
        self._latest: Use | None = None

    def note(self, use: Use | None) -> None:
        """Remember a forward pass that begins now."""
        self._latest = use
        for region in (*_hooks(), *_functions()):
            self._regions.setdefault(region, _Repeats()).uses.append(use)

    def repeated(self) -> Use | None:
        """Return the use that the running backward pass repeats.

        If no region of this module is repeated, it is the latest use.
        """
        region = next(filter(None, map(self._region_of, _stack())), None)
        use = self._latest if region is None else region.next()
        self.note(use)  # it may be recorded by a checkpoint within, which repeats it again
        return use

    def _region_of(self, frame: FrameType) -> _Repeats | None:
        first = _first_argument(frame)
        if isinstance(first, BackwardCFunction):
            found: _Repeats | None = self._regions.get(first)
            return found
        for region, repeats in self._regions.items():
            if _runs(frame, region):
                return repeats  # type: ignore[no-any-return]
        return None

    def __reduce__(self) -> tuple[type[Uses], tuple[()]]:
        """Leave them behind: a copy of a module has no backward pass to come."""
        return Uses, ()


class _Repeats:
    """The uses of one module in one region, in their order, in which each backward repeats them."""

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
    """Return the hooks of checkpoints that restore the tensors which autograd saves now.

    Other hooks, such as those that offload saved tensors, may be in use for a whole training.
    """
    hooks, autograd = [], torch._C._autograd
    while (top := autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        autograd._pop_saved_tensors_default_hooks()
    for pack, unpack in reversed(hooks):
        autograd._push_saved_tensors_default_hooks(pack, unpack)
    return [unpack for _, unpack in hooks if "checkpoint" in _full_name(unpack).lower()]


def _full_name(function: object) -> str:
    return ".".join(str(getattr(function, name, "")) for name in ("__module__", "__qualname__"))


def _functions() -> list[BackwardCFunction]:
    """Return the nodes whose forward passes run now: autograd records nothing within them."""
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
        return None  # f_locals may keep what a module's forward has in its variables
    return frame.f_locals.get(code.co_varnames[0])


def _runs(frame: FrameType, function: object) -> bool:
    """Return whether a frame is of this function, not of another that the same code made."""
    code = getattr(function, "__code__", None)
    if code is not frame.f_code:
        return False
    values = (cell.cell_contents for cell in function.__closure__ or ())  # type: ignore[attr-defined]
    names = code.co_freevars
    return all(frame.f_locals[name] is value for name, value in zip(names, values, strict=True))
