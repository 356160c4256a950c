"""Functions that stand at the names of PyTorch's, for those who look these up by object."""

from __future__ import annotations

from typing import Any

from torch import _jit_internal
from torch.jit import _builtins


def put_for(function: Any, original: Any, name: str) -> Any:
    """Let TorchScript compile a function as the original, and pickle find it at `name`."""
    operator = _builtins._find_builtin(original)
    if operator is not None:  # TorchScript knows operators by their functions in Python
        _builtins._register_builtin(function, operator)
    elif original in _jit_internal.boolean_dispatched:
        _jit_internal.boolean_dispatched[function] = _jit_internal.boolean_dispatched[original]
    else:
        function.__prepare_scriptable__ = lambda: original
    return named(function, name)


def named(found: Any, name: str) -> Any:
    """Let pickle find a function or a type under the name that it stands at."""
    parts = name.split(".")
    depth = next((at for at, part in enumerate(parts) if part[0].isupper()), len(parts) - 1)
    found.__module__, found.__qualname__ = ".".join(parts[:depth]), ".".join(parts[depth:])
    return found
