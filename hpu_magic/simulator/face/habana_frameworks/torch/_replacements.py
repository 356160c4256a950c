"""Make TorchScript and pickle work with functions that replace PyTorch's functions."""

from __future__ import annotations

from typing import Any

from torch import _jit_internal
from torch.jit import _builtins


def as_replacement(function: Any, original: Any, name: str) -> Any:
    """Let TorchScript compile a replacement like the original, and let pickle find it by `name`."""
    operator = _builtins._find_builtin(original)
    if operator is not None:  # TorchScript looks up operators by their Python functions
        _builtins._register_builtin(function, operator)
    elif original in _jit_internal.boolean_dispatched:
        _jit_internal.boolean_dispatched[function] = _jit_internal.boolean_dispatched[original]
    else:
        function.__prepare_scriptable__ = lambda: original
    return named(function, name)


def named(replacement: Any, name: str) -> Any:
    """Let pickle find a function or class by its dotted name."""
    parts = name.split(".")
    depth = next((at for at, part in enumerate(parts) if part[0].isupper()), len(parts) - 1)
    replacement.__module__ = ".".join(parts[:depth])
    replacement.__qualname__ = ".".join(parts[depth:])
    return replacement
