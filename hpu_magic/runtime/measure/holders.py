"""Who holds the device's memory: variables, and within them modules, by layer, and caches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpu_magic import units
from hpu_magic.runtime.device.tensors import tensors_in
from hpu_magic.runtime.device.widths import width
from hpu_magic.runtime.measure.module_tree import Part, parts_of
from hpu_magic.runtime.present.table import Table

_MOST_HOLDERS = 10
_MOST_LINES = 8
_INDENT = "\N{NO-BREAK SPACE}" * 2  # other spaces are lost in HTML
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Holder:
    """A variable that holds memory of the device.

    Attributes
    ----------
    name : str
        Of the variable.
    size : int
        Bytes.
    what : str
        Its class, and what there is to say of it.
    parts : sequence of Part
        Its modules and caches, largest first.
    """

    name: str
    size: int
    what: str
    parts: Sequence[Part] = ()


@dataclass(repr=False)
class HolderTable(Table):
    """Variables that hold memory of the device, largest first.

    Attributes
    ----------
    held : list of Holder
        All of them.
    """

    held: list[Holder]

    def title(self) -> str:
        """Return the headline."""
        return "Held by variables"

    def columns(self) -> Sequence[str]:
        """Return the columns: variable or path in it, memory, and what it is."""
        return ("held by", "memory", "what")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return a line for each of the largest variables, and for what is large in them."""
        found = []
        for one in self.held[:_MOST_HOLDERS]:
            found.append((one.name, units.size(one.size), one.what))
            found += [(path, units.size(size), what) for path, size, what in lines(one)]
        rest = self.held[_MOST_HOLDERS:]
        if rest:
            size = units.size(sum(one.size for one in rest))
            found.append((f"{len(rest)} other variables", size, ""))
        return found


def storage_of(tensor: Any) -> tuple[int, int, Any] | None:
    """Return identity, bytes and a weak reference of a tensor's storage on the device, or None.

    The reference keeps the identity from being used again for another storage.
    """
    torch = sys.modules["torch"]
    from torch.multiprocessing.reductions import StorageWeakRef

    if tensor.device.type != "hpu" or tensor.layout != torch.strided:
        return None
    storage = tensor.untyped_storage()
    reference = StorageWeakRef(storage)
    taken = storage.nbytes() * width(tensor.dtype) // tensor.dtype.itemsize
    return reference.cdata, taken, reference


def holders(variables: Mapping[str, Any], known: Iterable[int] = ()) -> list[Holder]:
    """Return who holds memory, largest first; what several hold counts for one of them.

    Parameters
    ----------
    variables : mapping
        Values by name. Modules come before what else has their parameters, such as an optimizer.
    known : iterable of int
        Identities of storages that do not count.
    """
    torch = sys.modules["torch"]
    seen = set(known)
    found = []
    modules_first = sorted(
        variables.items(), key=lambda item: not issubclass(type(item[1]), torch.nn.Module)
    )
    for name, value in modules_first:
        fresh: dict[int, int] = {}
        for tensor in tensors_in([value], into_objects=True):
            storage = storage_of(tensor)
            if storage is not None and storage[0] not in seen:
                fresh[storage[0]] = storage[1]
        seen |= fresh.keys()
        size = sum(fresh.values())
        if size:
            found.append(Holder(name, size, *_described(value, fresh)))
    return sorted(found, key=lambda one: -one.size)


def lines(holder: Holder, most: int = _MOST_LINES) -> Iterator[tuple[str, int, str]]:
    """Yield (path, bytes, what) of the largest parts of a variable, each below what it is in."""
    flat = [(part, depth) for one in holder.parts for depth, part in _flat(one, 1)]
    # Sorting keeps the order of equals, so what is shown is never without what it is in.
    ranked = sorted(flat, key=lambda pair: -pair[0].size)[:most]
    least = _LEAST_SHARE * holder.size
    shown = {id(part) for part, _ in ranked if part.size >= least}
    for part, depth in flat:
        if id(part) in shown:
            yield f"{_INDENT * depth}{_path(holder.name, part.path)}", part.size, part.what


def _flat(part: Part, depth: int) -> Iterator[tuple[int, Part]]:
    yield depth, part
    for one in part.parts:
        yield from ((deeper, inner) for deeper, inner in _flat(one, depth + 1))


def _path(name: str, path: str) -> str:
    return f"{name}.{path}" if name.isidentifier() else path


def _described(value: Any, fresh: dict[int, int]) -> tuple[str, Sequence[Part]]:
    torch = sys.modules["torch"]
    kind = type(value).__name__
    if issubclass(type(value), torch.nn.Module):
        gradients = _gradients(value, fresh)
        said = f"{kind}, {units.size(gradients)} of it gradients" if gradients else kind
        return said, parts_of(value, fresh, storage_of)
    if issubclass(type(value), torch.Tensor):
        shape = " x ".join(map(str, value.shape)) or "one number"
        return f"{shape}, {str(value.dtype).removeprefix('torch.')}", ()
    return kind, parts_of(value, fresh, storage_of)


def _gradients(module: Any, fresh: dict[int, int]) -> int:
    given = {}
    for parameter in module.parameters():
        gradient = parameter.grad if parameter.is_leaf else None
        storage = storage_of(gradient) if gradient is not None else None
        if storage is not None and storage[0] in fresh:
            given[storage[0]] = storage[1]
    return sum(given.values())
