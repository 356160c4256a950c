"""Find the module to which an operation of the forward or backward pass belongs."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from hpu_magic.estimates.tracing.program import Phase


class RunningModules:
    """Tracks the running module; in the backward pass, the one that created the node."""

    def __init__(self, model: nn.Module) -> None:
        self._names = {id(module): name for name, module in model.named_modules()}
        self._stack: list[str] = []
        self._by_node: dict[int, str] = {}
        self._backward = ""  # the module that ran most recently in the backward pass

    def __enter__(self) -> RunningModules:
        self._hooks = (
            register_module_forward_pre_hook(self._entered),
            register_module_forward_hook(self._left, always_call=True),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def _entered(self, module: nn.Module, _: Any) -> None:
        if (name := self._names.get(id(module))) is not None:
            self._stack.append(name)

    def _left(self, module: nn.Module, _: Any, __: Any) -> None:
        if id(module) in self._names and self._stack:
            self._stack.pop()

    def now(self) -> tuple[str, Phase, int]:
        """Return the path of the running module, the phase of the step, and `Operation.node`."""
        node = torch._C._current_autograd_node()
        running = None if node is None else node._sequence_nr()
        # Autograd creates the node of an operation just before the operation runs.
        created = torch._C._autograd._get_sequence_nr() - 1
        if self._stack:
            name = self._stack[-1]
            self._by_node.setdefault(created, name)
            if running is None:
                return name, Phase.FORWARD, created
            return name, Phase.RECOMPUTED, running
        if running is not None:
            self._backward = self._by_node.get(running, self._backward)
            return self._backward, Phase.BACKWARD, running
        return "", Phase.FORWARD, created
