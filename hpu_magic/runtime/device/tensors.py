"""Find all tensors in a module, a container, an optimizer or another object."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

_PLAIN = (str, bytes, int, float, complex, bool, type(None), range, slice, type)
_LIMIT = 200_000


def tensors_in(value: Any, *, into_objects: bool = False) -> Iterator[Any]:
    """Yield each tensor in ``value`` once, including gradients.

    ``value`` is a tensor, a module, an optimizer, or a nested container of these. With
    ``into_objects``, the attributes of other objects, such as a trainer, are searched as well.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return
    seen: set[int] = set()
    waiting = [value]
    while waiting and len(seen) < _LIMIT:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, _PLAIN):
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            yield item
            if item.is_leaf and item.grad is not None:
                waiting.append(item.grad)
        else:
            waiting.extend(reversed(list(_held_by(item, torch, into_objects))))


def devices_elsewhere(module: Any) -> list[str]:
    """Return the devices of a module's parameters, except hpu."""
    devices = {parameter.device for parameter in module.parameters()}
    return sorted(str(device) for device in devices if device.type != "hpu")


def _held_by(value: Any, torch: Any, into_objects: bool) -> Iterator[Any]:
    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, torch.optim.Optimizer):
        for group in value.param_groups:
            yield from group["params"]
        yield from value.state.values()
    elif isinstance(value, Mapping):
        yield from list(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from list(value)
    attributes = getattr(value, "__dict__", None)
    if into_objects and isinstance(attributes, dict) and not isinstance(value, ModuleType):
        yield from list(attributes.values())
