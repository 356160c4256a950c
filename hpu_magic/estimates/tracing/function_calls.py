"""Find the calls of PyTorch functions to which the operations of a forward pass belong."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from hpu_magic.estimates.tracing.program import NEVER, Program

_NORMS = {
    functional.batch_norm,
    functional.group_norm,
    functional.instance_norm,
    functional.layer_norm,
    functional.rms_norm,
}
"""Functions whose weights are keyword arguments in a mode, but not in calls by `torch.nn`."""


class FunctionCalls(TorchFunctionMode):
    """Adds calls of PyTorch functions, which are the nodes of Dynamo's graph, to a program.

    A function that `torch.utils.checkpoint` calls is also a single node.
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._calls = program.calls
        self._arguments: tuple[Any, ...] | None = None
        self._number = NEVER
        self._checkpoint: Callable[[], object] = _nothing

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        before = self._arguments, self._number
        self._arguments, self._number = args, NEVER
        if func in _NORMS:
            self._arguments += tuple(kwargs.values())
        try:
            return func(*args, **kwargs)
        finally:
            self._arguments, self._number = before

    def number(self, storage_of: Callable[[torch.Tensor], int]) -> int:
        """Return the index of the running call, and add it when its first operation runs."""
        if self._arguments is not None and self._number == NEVER:
            checkpoint = _running_checkpoint()
            if checkpoint is None or checkpoint is not self._checkpoint():
                self._calls.append(set())
                self._checkpoint = _nothing if checkpoint is None else weakref.ref(checkpoint)
            parameters = (each for each in self._arguments if isinstance(each, torch.nn.Parameter))
            self._calls[-1].update(map(storage_of, parameters))
            self._number = len(self._calls) - 1
        return self._number


def _nothing() -> None:
    return None


def _running_checkpoint() -> Any:
    """Return a function that only the running call of `torch.utils.checkpoint` uses, or None."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # not in 2.6
    hooks = None if top is None else top(True)
    pack = None if hooks is None else hooks[0]
    return pack if "_checkpoint_hook" in getattr(pack, "__qualname__", "") else None
