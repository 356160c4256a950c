"""Keys to find a graph by: equal only for inputs that a graph computes alike."""

from __future__ import annotations

import copyreg
import itertools
from collections.abc import Hashable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from habana_frameworks.torch.hpu.graphs._inputs import parts

import torch

_EXACT = frozenset({bool, int, str, bytes, type(None)})
_THEMSELVES = (type, FunctionType, BuiltinFunctionType, ModuleType, torch.nn.Module)
_fresh = itertools.count()


class NoKeyError(TypeError):
    """An input cannot be compared by value."""


class _HoldsTensorsError(NoKeyError):
    """A tensor is part of an object that is not taken apart."""


class _Itself:
    """Equal to itself only; the object stays alive, so that no other gets its id."""

    def __init__(self, obj: Any) -> None:
        self._object = obj

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._object is self._object

    def __hash__(self) -> int:
        return id(self._object)

    def __repr__(self) -> str:
        return f"<{id(self._object)}>"


def input_hash(obj: Any) -> int:
    """Return the hash of the key under which a graph for these inputs is kept; see `input_key`.

    Inputs that have no key get another number at each call.
    """
    try:
        return hash(repr(input_key(obj)))  # hash(-1) is hash(-2), and no two texts share theirs
    except NoKeyError:
        return hash(f"no key {next(_fresh)}")


def input_key(obj: Any) -> Hashable:
    """Return the key under which a graph for these inputs is kept.

    Autocast's state is part of it. A tensor counts by its shape and layout as a view, not by its
    dtype or values; so do the tensors within lists, tuples, dicts and other mutable mappings,
    dataclasses and what is registered with PyTorch's pytree, which are the graph's inputs.
    Modules, functions and classes count as themselves. Anything else counts by its value, as
    pickle would write it, and by its attributes: arrays of NumPy, sets, slices, objects. If it
    holds tensors, as a cache of keys and values does, it counts as itself instead, whatever
    changes in it.

    Raises
    ------
    NoKeyError
        A value can be neither written by pickle nor hashed as itself, or is hashed by a value
        that includes tensors. Such a call runs without a graph.
    """
    autocast = torch.is_autocast_enabled("hpu") and torch.get_autocast_dtype("hpu")
    try:
        return (autocast, _key(obj, ()))
    except RecursionError as error:
        raise NoKeyError("an input is nested too deeply") from error


def _key(obj: Any, around: tuple[int, ...], *, within: bool = False) -> Hashable:
    """Return the key of one value.

    Parameters
    ----------
    around : tuple of int
        The ids of what it is part of, for objects that contain themselves.
    within : bool
        It is part of an object that is not taken apart: a tensor here is not an input.
    """
    kind = type(obj)
    if kind in _EXACT:
        return (kind, obj)
    if isinstance(obj, torch.Tensor):
        if within:
            raise _HoldsTensorsError(f"a {kind.__name__} is part of an object, not of a container")
        view = (obj._is_view(), obj.stride(), obj.storage_offset())
        return ("tensor", tuple(obj.shape), view)
    if kind is float:
        return (kind, obj.hex())  # 0.0 and -0.0 are two, nan is one
    if isinstance(obj, _THEMSELVES):
        return _Itself(obj)
    if id(obj) in around:
        return ("cycle", len(around) - around.index(id(obj)))
    around = (*around, id(obj))
    if kind is list or kind is tuple:
        return (kind, tuple([_key(one, around, within=within) for one in obj]))
    taken = parts(obj)
    if taken is not None:
        children = tuple([_key(one, around, within=within) for one in taken.children])
        return (kind, _key(taken.about, around, within=True), children)
    if kind in (set, frozenset):
        return (kind, tuple(sorted([_key(one, around, within=within) for one in obj], key=repr)))
    return _written(obj, around)


def _written(obj: Any, around: tuple[int, ...]) -> Hashable:
    """Return the key of an object by what pickle and copy make it from."""
    kind = type(obj)
    try:
        reduce = copyreg.dispatch_table.get(kind)
        made = reduce(obj) if reduce is not None else obj.__reduce_ex__(4)
        if isinstance(made, str):  # the name of something global
            return _Itself(obj)
        how, arguments, state, items, pairs = (*made, None, None, None)[:5]
        content = [how, arguments, state, list(items or ()), list(pairs or ())]
        if state is not None or isinstance(how, type):  # else it may be global, such as a logger
            content.append(_omitted(obj, state))
        return (kind, tuple([_key(one, around, within=True) for one in content]))
    except _HoldsTensorsError:
        if kind.__hash__ is object.__hash__:
            return _Itself(obj)
        raise
    except (NoKeyError, RecursionError):
        raise
    except Exception as error:  # whatever an object's own code raises
        raise NoKeyError(f"a {kind.__name__} cannot be compared by value ({error})") from error


def _omitted(obj: Any, state: Any) -> dict[str, Any]:
    """Return the attributes that are not in the state for pickle."""
    written = state[0] if isinstance(state, tuple) and state else state
    written = written if isinstance(written, dict) else {}
    attributes = getattr(obj, "__dict__", {})
    return {name: one for name, one in attributes.items() if written.get(name) is not one}
