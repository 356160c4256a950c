"""The memory of a model by its modules: the layers of a list as one, and caches.

A model of forty layers is told in the lines of one of them, with sums over all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.runtime.device.tensors import tensors_in

_FEWEST_ALIKE = {"ModuleList": 2}
_FEWEST_ELSEWHERE = 3  # such as in a Sequential, whose modules are seldom layers of one kind
_CONTAINERS = ("ModuleList", "ModuleDict")
StorageOf = Callable[[Any], "tuple[int, int, Any] | None"]


@dataclass(frozen=True)
class Part:
    """A module, or all of those that are alike, or a cache.

    Attributes
    ----------
    path : str
        Where it is, from its variable: ``model.layers.*.mlp`` for all that a list has.
    size : int
        Bytes of all of them.
    what : str
        The class, how many there are and how large each is.
    parts : sequence of Part
        What it consists of, largest first.
    """

    path: str
    size: int
    what: str
    parts: Sequence[Part] = ()


def parts_of(value: Any, fresh: Mapping[int, int], storage_of: StorageOf) -> list[Part]:
    """Return modules and caches that an object has, largest first.

    Parameters
    ----------
    value : object
        A module, or what has some as attributes or items: a Trainer, a pipeline, an output.
    fresh : mapping of int to int
        Bytes of the storages that count, by identity; each counts where it is met first.
    storage_of : callable
        Returns identity and bytes of a tensor's storage, or None for one that is elsewhere.
    """
    torch = sys.modules["torch"]
    count = _Count(dict(fresh), storage_of)
    if issubclass(type(value), torch.nn.Module):
        return _sorted(_inner("", [_Node.of("", value, count, set())]))
    items = value if isinstance(value, Mapping) else getattr(value, "__dict__", None) or {}
    found: list[Part] = []
    for name, one in list(items.items()):
        if not isinstance(name, str):
            continue
        if issubclass(type(one), torch.nn.Module):
            found.append(_part(name, [_Node.of(name, one, count, set())]))
        elif _is_cache(one) or issubclass(type(one), torch.optim.Optimizer):
            found.append(Part(name, count.all_of(one), _described(one)))
    return _sorted(found)


class _Count:
    """Gives each storage to whoever asks for it first."""

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
    """A module with its own bytes, those of its caches, and the modules in it."""

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
        tensors = [one for one in held.values() if issubclass(type(one), torch.Tensor)]
        own = count([*weights, *_gradients(weights), *tensors])
        inner = [
            cls.of(key, one, count, seen)
            for key, one in module.named_children()
            if id(one) not in seen
        ]
        inner += [
            cls(key, _described(one), count.all_of(one))
            for key, one in held.items()
            if _is_cache(one)
        ]
        return cls(name, type(module).__name__, own + sum(one.size for one in inner), inner)


def _gradients(weights: list[Any]) -> list[Any]:
    return [one.grad for one in weights if one.is_leaf and one.grad is not None]


def _part(path: str, nodes: list[_Node]) -> Part:
    """Return modules that are alike as one; only lists of layers are opened."""
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
    """Return the modules in some that are alike, by name, and those of a list as one.

    A module that is there for a list of layers gives way to what is in it.
    """
    by_name: dict[str, list[_Node]] = {}
    for node in nodes:
        for one in node.inner:
            by_name.setdefault(one.name, []).append(one)
    prefix = f"{path}." if path else ""
    found: list[Part] = []
    for name, alike in _with_lists(nodes[0].kind, by_name).items():
        part = _part(f"{prefix}{name}", alike)
        wraps = not name.endswith("*") and part.parts
        found += part.parts if wraps and _is_whole(part) else [part]
    return found


def _with_lists(kind_of_list: str, by_name: dict[str, list[_Node]]) -> dict[str, list[_Node]]:
    """Put modules that have numbers for names and one class together, if they are several."""
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
    found: dict[str, list[_Node]] = {}
    for name, nodes in by_name.items():
        if name not in alike:
            found[name] = nodes
        else:
            # Of layers of several classes, each says which they are.
            several = "*" if len(kinds) == 1 else f"{alike[name]}*"
            found.setdefault(several, []).extend(nodes)
    return found


def _has_list(nodes: list[_Node]) -> bool:
    for node in nodes:
        names = _with_lists(node.kind, {one.name: [one] for one in node.inner})
        if any(name.endswith("*") for name in names) or _has_list(node.inner):
            return True
    return False


def _is_whole(part: Part) -> bool:
    return sum(one.size for one in part.parts) == part.size


def _sorted(parts: list[Part]) -> list[Part]:
    return sorted((one for one in parts if one.size), key=lambda one: -one.size)


def _is_cache(value: Any) -> bool:
    """Tell whether `value` keeps keys and values for a model of transformers."""
    cache = getattr(sys.modules.get("transformers.cache_utils"), "Cache", None)
    return cache is not None and issubclass(type(value), cache)


def _described(value: Any) -> str:
    kind = type(value).__name__
    if _is_cache(value):
        layers = getattr(value, "layers", None)
        of = f" of {len(layers)} layers" if layers is not None else ""
        return f"{kind}: keys and values{of}"
    return kind
