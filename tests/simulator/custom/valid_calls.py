"""Operator families of the tests, and the valid calls of ``torch.ops.hpu`` that they make."""

from __future__ import annotations

import contextlib
import importlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from habana_frameworks.torch import core as htcore
from torch.utils._python_dispatch import TorchDispatchMode

Call = tuple[list[Any], dict[str, Any]]


class _Recording(TorchDispatchMode):
    """Records the arguments of each operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[Call]] = defaultdict(list)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace == "hpu":
            copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in args]
            self.calls[str(func._schema)].append((copies, dict(kwargs or {})))
        return func(*args, **(kwargs or {}))


def families() -> list[str]:
    """Return the names of test modules that define `everything` and `operands`."""
    sources = {path.stem: path.read_text() for path in Path(__file__).parent.glob("test_*.py")}
    needed = ("\ndef everything(", "\ndef operands(")
    return sorted(
        name for name, source in sources.items() if all(each in source for each in needed)
    )


def valid_calls() -> dict[str, list[Call]]:
    """Return the calls of all families, by operator schema."""
    recording = _Recording()
    for name in families():
        module = importlib.import_module(name)
        # Operators of the other mode are missing.
        with recording, torch.no_grad(), contextlib.suppress(RuntimeError, AttributeError):
            module.everything(*module.operands(6))
            htcore.mark_step()
    return recording.calls
