"""Calls of ``torch.ops.hpu`` that are right: those that the tests of each family make."""

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
    """Notes the arguments of each operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[Call]] = defaultdict(list)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace == "hpu":
            given = [each.clone() if isinstance(each, torch.Tensor) else each for each in args]
            self.calls[str(func._schema)].append((given, dict(kwargs or {})))
        return func(*args, **(kwargs or {}))


def valid_calls() -> dict[str, list[Call]]:
    """Give calls by the operator's schema, from the modules that have operands for everything."""
    recording = _Recording()
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "\ndef everything(" not in source or "\ndef operands(" not in source:
            continue
        module = importlib.import_module(path.stem)
        sizes = [] if "\ndef operands(seed=0)" in source else [6]
        # A family of the other mode has some operators here, or none.
        with recording, torch.no_grad(), contextlib.suppress(RuntimeError, AttributeError):
            module.everything(*module.operands(*sizes))
            htcore.mark_step()
    return recording.calls
