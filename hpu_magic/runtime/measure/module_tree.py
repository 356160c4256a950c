"""Break down a model's memory by module and cache, combining the layers in a list.

Each line is a sum over all layers, so the number of lines does not depend on the number of layers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.runtime.device.tensors import tensors_in

_FEWEST_ALIKE = {"ModuleList": 2}
_FEWEST_ELSEWHERE = 3  # the modules of a Sequential, for example, are rarely similar layers
_CONTAINERS = ("ModuleList", "ModuleDict")
StorageOf = Callable[[Any], "tuple[int, int, Any] | None"]


@dataclass(frozen=True)
class Part:
    """A module, a group of similar modules, or a cache."""

    path: str  # starts with the variable's name; ``model.layers.*.mlp`` is a group in a list
    size: int  # size of the whole group in bytes
    what: str  # the class, and the number and sizes of the modules
    parts: Sequence[Part] = ()  # its parts, largest first


def parts_of(value: Any, fresh: Mapping[int, int], storage_of: StorageOf) -> list[Part]:
    """Return the modules and caches of an object, largest first.

    The object is a module, or has modules as attributes or items, like a Trainer or a pipeline.
    ``fresh`` maps the id of each storage to be counted to its size in bytes. Each storage is
    attributed to the first module that contains it. ``storage_of`` returns the id and size of a
    tensor's storage, or None if the storage is not on the device.
    """
    torch = sys.modules["torch"]
    count = _Count(dict(fresh), storage_of)
    if issubclass(type(value), torch.nn.Module):
        return _sorted(_inner("", [_Node.of("", value, count, set())]))
    items = value if isinstance(value, Mapping) else getattr(value, "__dict__", None) or {}
    parts: list[Part] = []
    for name, item in list(items.items()):
        if not isinstance(name, str):
            continue
        if issubclass(type(item), torch.nn.Module):
            parts.append(_part(name, [_Node.of(name, item, count, set())]))
        elif _is_cache(item) or issubclass(type(item), torch.optim.Optimizer):
            parts.append(Part(name, count.all_of(item), _described(item)))
    return _sorted(parts)


class _Count:
    """Counts the bytes of tensors, counting each storage only once."""

    def __init__(self, left: dict[int, int], storage_of: StorageOf) -> None:
        self._left = left
        self._storage_of = storage_of

    def __call__(self, tensors: Any) -> int:
        total = 0
        for tensor in tensors:
            storage = self._storage_of(tensor)
            total += 0 if storage is None else self._left.pop(storage[0], 0)
        return total

    def all_of(self, value: Any) -> int:
        return self(tensors_in(value, into_objects=True))


@dataclass
class _Node:
    """A module with its total bytes, its child modules and its caches."""

    name: str
    kind: str
    size: int
    inner: list[_Node] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, module: Any, count: _Count, seen: set[int]) -> _Node:
        seen.add(id(module))
        torch = sys.modules["torch"]
        weights = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        held = vars(module)
        tensors = [value for value in held.values() if issubclass(type(value), torch.Tensor)]
        own = count([*weights, *_gradients(weights), *tensors])
        inner = [
            cls.of(key, child, count, seen)
            for key, child in module.named_children()
            if id(child) not in seen
        ]
        inner += [
            cls(key, _described(value), count.all_of(value))
            for key, value in held.items()
            if _is_cache(value)
        ]
        return cls(name, type(module).__name__, own + sum(node.size for node in inner), inner)


def _gradients(weights: list[Any]) -> list[Any]:
    return [weight.grad for weight in weights if weight.is_leaf and weight.grad is not None]


def _part(path: str, nodes: list[_Node]) -> Part:
    """Combine similar modules into one part, with subparts only for lists of layers."""
    size = sum(node.size for node in nodes)
    if len(nodes) == 1:
        what = nodes[0].kind
    elif len({node.size for node in nodes}) == 1:
        what = f"{len(nodes)} {nodes[0].kind}, {units.size(nodes[0].size)} each"
    else:
        sizes = [node.size for node in nodes]
        what = f"{len(nodes)} {nodes[0].kind}, {units.size(min(sizes))} to {units.size(max(sizes))}"
    opened = path.endswith("*") or nodes[0].kind in _CONTAINERS or _has_list(nodes)
    return Part(path, size, what, _sorted(_inner(path, nodes)) if opened else ())


def _inner(path: str, nodes: list[_Node]) -> list[Part]:
    """Return the children of similar modules by name, combining those in a list.

    A module that only wraps a list of layers is replaced by its parts.
    """
    by_name: dict[str, list[_Node]] = {}
    for node in nodes:
        for child in node.inner:
            by_name.setdefault(child.name, []).append(child)
    prefix = f"{path}." if path else ""
    parts: list[Part] = []
    for name, alike in _with_lists(nodes[0].kind, by_name).items():
        part = _part(f"{prefix}{name}", alike)
        wraps = not name.endswith("*") and part.parts
        parts += part.parts if wraps and _is_whole(part) else [part]
    return parts


def _with_lists(kind_of_list: str, by_name: dict[str, list[_Node]]) -> dict[str, list[_Node]]:
    """Combine numbered modules of the same class into one entry if there are enough of them."""
    lists: dict[str, list[str]] = {}
    for name, nodes in by_name.items():
        if name.isdecimal():
            lists.setdefault(nodes[0].kind, []).append(name)
    alike = {
        name: kind
        for kind, names in lists.items()
        if len(names) >= _FEWEST_ALIKE.get(kind_of_list, _FEWEST_ELSEWHERE)
        for name in names
    }
    kinds = set(alike.values())
    combined: dict[str, list[_Node]] = {}
    for name, nodes in by_name.items():
        if name not in alike:
            combined[name] = nodes
        else:
            # If the layers have different classes, the name includes the class.
            several = "*" if len(kinds) == 1 else f"{alike[name]}*"
            combined.setdefault(several, []).extend(nodes)
    return combined


def _has_list(nodes: list[_Node]) -> bool:
    for node in nodes:
        names = _with_lists(node.kind, {child.name: [child] for child in node.inner})
        if any(name.endswith("*") for name in names) or _has_list(node.inner):
            return True
    return False


def _is_whole(part: Part) -> bool:
    return sum(inner.size for inner in part.parts) == part.size


def _sorted(parts: list[Part]) -> list[Part]:
    return sorted((part for part in parts if part.size), key=lambda part: -part.size)


def _is_cache(value: Any) -> bool:
    """Return whether `value` is a key-value cache for a model from transformers."""
    cache = getattr(sys.modules.get("transformers.cache_utils"), "Cache", None)
    return cache is not None and issubclass(type(value), cache)


def _described(value: Any) -> str:
    kind = type(value).__name__
    if _is_cache(value):
        layers = getattr(value, "layers", None)
        of = f" of {len(layers)} layers" if layers is not None else ""
        return f"{kind}: keys and values{of}"
    return kind
