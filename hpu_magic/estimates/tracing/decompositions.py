"""The operators that `torch.compile` calls instead of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten


@contextmanager
def decompositions() -> Iterator[None]:
    """Trace the operators of compiled code inside the ``with`` block."""
    with enable_python_dispatcher(), _Dropout():
        yield


@contextmanager
def compiling() -> Iterator[None]:
    """Let a model take the paths of its code that `torch.compile` takes."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


class _Dropout(TorchDispatchMode):
    """Divides dropout into the operators of eager mode, which PyTorch's compiler combines."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is _aten.native_dropout.default and args[2] is not False and 0 < args[1] < 1:
            kept = 1 - args[1]
            noise = torch.bernoulli(args[0], kept) / kept
            return args[0] * noise, noise
        if func is _aten.native_dropout_backward.default and args[1].dtype is not torch.bool:
            return args[0] * args[1]
        return func(*args, **(kwargs or {}))
