"""Names and functions that accept a device or a torch.distributed backend."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable
from typing import Any

from hpu_magic.runtime.porting.bindings import Bindings

OTHERS = ("cpu", "mps", "xpu", "meta", "gloo")
_DEVICE = re.compile(r"(.*_)?(devices?|device_types?|device_map|map_location|accelerator)")
_BACKEND = re.compile(r"(.*_)?backend")
# Position of the device parameter in functions without a signature, and in a few others in case
# torch is not imported.
_POSITIONS = {
    "torch.device": 0,
    "torch.Generator": 0,
    "torch.Stream": 0,
    "torch.Event": 0,
    "torch.autocast": 0,
    "torch.amp.autocast": 0,
    "torch.load": 1,
    "torch.is_autocast_enabled": 0,
    "torch.set_autocast_enabled": 0,
    "torch.get_autocast_dtype": 0,
    "torch.set_autocast_dtype": 0,
}
_METHODS = {"to": 0, "pin_memory": 0, "to_empty": 0, "register_kernel": 0}
_FUNCTIONS = {"autocast": 0, "GradScaler": 0, "init_device_mesh": 0}  # regardless of their module
_BACKENDS = {"init_process_group": 0}
_TAKERS = re.compile(r"(.*_)?device")  # names of functions


def is_name(name: str, *, backend: bool = False) -> bool:
    """Return whether a variable or option with this name holds a device (or a backend).

    Examples are ``--device`` and ``map_location`` for devices, and ``ddp_backend`` for backends.
    """
    plain = name.lstrip("-").replace("-", "_").lower()
    return (_BACKEND if backend else _DEVICE).fullmatch(plain) is not None


def last_name(node: ast.AST | None) -> str:
    """Return the last part of a name or an attribute, or "" for other nodes."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.arg):
        return node.arg
    return node.id if isinstance(node, ast.Name) else getattr(node, "name", "")


def takes(
    function: ast.expr, places: Iterable[int], bindings: Bindings, *, backend: bool = False
) -> bool:
    """Return whether a function takes a device (or a backend) at one of these positions."""
    return any(_takes(function, place, bindings, backend=backend) for place in places)


def _takes(function: ast.expr, place: int, bindings: Bindings, *, backend: bool) -> bool:
    called = last_name(function)
    if backend:
        return _BACKENDS.get(called) == place
    name = bindings.dotted(function)
    if isinstance(function, ast.Attribute) and last_name(function.value) == "Tensor":
        return _METHODS.get(called) == place - 1
    if name is None and isinstance(function, ast.Attribute) and _METHODS.get(called) == place:
        return True
    if name is not None and (_POSITIONS.get(name) == place or _of_cuda(name)):
        return True
    value = _torch(name) if name is not None else None
    if value is None and isinstance(function, ast.Name):
        value = bindings.variable(function.id)
    if _FUNCTIONS.get(called) == place:
        return True
    parameter = _parameter(value, place)
    if parameter is not None:
        return is_name(parameter)
    return _TAKERS.fullmatch(called) is not None


def _of_cuda(name: str) -> bool:
    return name.startswith(("torch.cuda.", "torch.hpu.")) and "nvtx" not in name


def _torch(name: str) -> Any:
    """Return the object that a full name in torch refers to, if torch is imported."""
    parts = name.split(".")
    value: Any = sys.modules.get("torch") if parts[0] == "torch" else None
    for part in parts[1:]:
        value = getattr(value, part, None)
    return value


def _parameter(value: Any, place: int) -> str | None:
    """Return the name of a function's positional parameter if the function has a signature."""
    if not callable(value):
        return None
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in parameters if each.kind in positional]
    return names[place] if place < len(names) else None
