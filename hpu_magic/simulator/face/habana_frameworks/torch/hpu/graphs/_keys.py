"""Keys of cached graphs. Two inputs have the same key only if they can use the same graph."""

from __future__ import annotations

import copyreg
import itertools
from collections.abc import Hashable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from habana_frameworks.torch.hpu.graphs._inputs import parts

import torch

_EXACT = frozenset({bool, int, str, bytes, type(None)})
_BY_IDENTITY = (type, FunctionType, BuiltinFunctionType, ModuleType, torch.nn.Module)
_without_key = itertools.count()


class NoKeyError(TypeError):
    """Raised if an input cannot be compared by value."""


class _ContainsTensorsError(NoKeyError):
    """Raised if an object that is not a container contains a tensor."""


class _Identity:
    """Compares an object by identity, and keeps it alive so that its ID is not reused."""

    def __init__(self, obj: Any) -> None:
        self._object = obj

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other._object is self._object

    def __hash__(self) -> int:
        return id(self._object)

    def __repr__(self) -> str:
        return f"<{id(self._object)}>"


def input_hash(obj: Any) -> int:
    """Return the hash of `input_key`, or a new value on each call if the inputs have no key."""
    try:
        return hash(repr(input_key(obj)))  # hash the repr, because hash(-1) equals hash(-2)
    except NoKeyError:
        return hash(f"no key {next(_without_key)}")


def input_key(obj: Any) -> Hashable:
    """Return the cache key for these inputs.

    The key includes the autocast state. Tensors are compared by shape, strides and storage offset,
    but not by dtype or values. The same applies to tensors in lists, tuples, dicts, other mutable
    mappings, dataclasses, and types registered with PyTorch's pytree; all these tensors are inputs
    of the graph. Modules, functions and classes are compared by identity. Other objects, such as
    NumPy arrays, sets and slices, are compared by their pickled values and their attributes. An
    object that contains tensors, such as a KV cache, is compared by identity, and changes to it are
    ignored.

    Raises
    ------
    NoKeyError
        A value can be neither pickled nor compared by identity.
    """
    autocast = torch.is_autocast_enabled("hpu") and torch.get_autocast_dtype("hpu")
    try:
        return (autocast, _key(obj, ()))
    except RecursionError as error:
        raise NoKeyError("an input is nested too deeply") from error


def _key(obj: Any, parents: tuple[int, ...], *, in_object: bool = False) -> Hashable:
    """Return the key of a value.

    `parents` are the IDs of the enclosing objects, used to detect cycles. If `in_object` is true,
    the value belongs to an object that is not a container, and its tensors are not inputs.
    """
    kind = type(obj)
    if kind in _EXACT:
        return (kind, obj)
    if isinstance(obj, torch.Tensor):
        if in_object:
            raise _ContainsTensorsError(f"a {kind.__name__} is in an object, not in a container")
        view = (obj._is_view(), obj.stride(), obj.storage_offset())
        return ("tensor", tuple(obj.shape), view)
    if kind is float:
        return (kind, obj.hex())  # 0.0 differs from -0.0, and nan equals nan
    if isinstance(obj, _BY_IDENTITY):
        return _Identity(obj)
    if id(obj) in parents:
        return ("cycle", len(parents) - parents.index(id(obj)))
    parents = (*parents, id(obj))
    if kind is list or kind is tuple:
        return (kind, tuple([_key(child, parents, in_object=in_object) for child in obj]))
    container = parts(obj)
    if container is not None:
        children = tuple(
            [_key(child, parents, in_object=in_object) for child in container.children]
        )
        return (kind, _key(container.about, parents, in_object=True), children)
    if kind in (set, frozenset):
        keys = [_key(child, parents, in_object=in_object) for child in obj]
        return (kind, tuple(sorted(keys, key=repr)))
    return _pickled_key(obj, parents)


def _pickled_key(obj: Any, parents: tuple[int, ...]) -> Hashable:
    """Return the key of an object, based on the values from which pickle and copy recreate it."""
    kind = type(obj)
    try:
        reduce = copyreg.dispatch_table.get(kind)
        reduced = reduce(obj) if reduce is not None else obj.__reduce_ex__(4)
        if isinstance(reduced, str):  # name of a global object
            return _Identity(obj)
        create, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        content = [create, arguments, state, list(items or ()), list(pairs or ())]
        # Other objects may be recreated by reference, for example loggers.
        if state is not None or isinstance(create, type):
            content.append(_omitted(obj, state))
        return (kind, tuple([_key(child, parents, in_object=True) for child in content]))
    except _ContainsTensorsError:
        if kind.__hash__ is object.__hash__:
            return _Identity(obj)
        raise
    except (NoKeyError, RecursionError):
        raise
    except Exception as error:  # the object's methods can raise any exception
        raise NoKeyError(f"a {kind.__name__} cannot be compared by value ({error})") from error


def _omitted(obj: Any, state: Any) -> dict[str, Any]:
    """Return the attributes that the pickled state omits."""
    pickled = state[0] if isinstance(state, tuple) and state else state
    pickled = pickled if isinstance(pickled, dict) else {}
    attributes = getattr(obj, "__dict__", {})
    return {name: value for name, value in attributes.items() if pickled.get(name) is not value}
