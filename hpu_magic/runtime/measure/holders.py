"""Break down device memory by variable, and each variable by module and cache."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpu_magic import units
from hpu_magic.runtime.device.device import width
from hpu_magic.runtime.device.tensors import tensors_in
from hpu_magic.runtime.measure.module_tree import Part, parts_of
from hpu_magic.runtime.present.table import Table

_MOST_HOLDERS = 10
_MOST_LINES = 8
_INDENT = "\N{NO-BREAK SPACE}" * 2  # HTML would collapse ordinary spaces
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class VariableHolder:
    """A variable that holds device memory."""

    name: str
    size: int
    what: str  # the variable's class, and its shape or gradients
    parts: Sequence[Part] = ()  # the variable's modules and caches, largest first


@dataclass(repr=False)
class HolderTable(Table):
    """Variables that hold device memory, largest first."""

    held: list[VariableHolder]
    everything: bool = False  #: list all variables and modules instead of only the largest ones

    def title(self) -> str:
        """Return the headline."""
        return "Held by variables"

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return ("held by", "memory", "what")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return one line per large variable, each followed by lines for its large parts."""
        rows = []
        listed = len(self.held) if self.everything else _MOST_HOLDERS
        for holder in self.held[:listed]:
            rows.append((holder.name, units.size(holder.size), holder.what))
            parts = lines(holder, None if self.everything else _MOST_LINES)
            rows += [(path, units.size(size), what) for path, size, what in parts]
        rest = self.held[listed:]
        if rest:
            size = units.size(sum(holder.size for holder in rest))
            rows.append((f"{len(rest)} other variables", size, ""))
        return rows


def storage_of(tensor: Any) -> tuple[int, int, Any] | None:
    """Return the id, size in bytes and weak reference of a tensor's device storage, or None.

    As long as the reference exists, no other storage can have the same id.
    """
    torch = sys.modules["torch"]
    from torch.multiprocessing.reductions import StorageWeakRef

    if tensor.device.type != "hpu" or tensor.layout != torch.strided:
        return None
    storage = tensor.untyped_storage()
    reference = StorageWeakRef(storage)
    size = storage.nbytes() * width(tensor.dtype) // tensor.dtype.itemsize
    return reference.cdata, size, reference


def holders(variables: Mapping[str, Any], known: Iterable[int] = ()) -> list[VariableHolder]:
    """Return the variables that hold memory, largest first; shared memory is counted once.

    The memory of parameters is attributed to their module, not to its optimizer. Storages in
    ``known`` are not counted.
    """
    torch = sys.modules["torch"]
    seen = set(known)
    held = []
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
            held.append(VariableHolder(name, size, *_described(value, fresh)))
    return sorted(held, key=lambda holder: -holder.size)


def lines(holder: VariableHolder, most: int | None = _MOST_LINES) -> Iterator[tuple[str, int, str]]:
    """Yield (path, bytes, description) of the largest parts of a variable, each after its parent.

    If `most` is None, all parts are yielded.
    """
    flat = [(part, depth) for top in holder.parts for depth, part in _flat(top, 1)]
    # The sort is stable, so a part is never selected without its parent.
    ranked = sorted(flat, key=lambda pair: -pair[0].size)[:most]
    least = _LEAST_SHARE * holder.size if most is not None else 0
    shown = {id(part) for part, _ in ranked if part.size >= least}
    for part, depth in flat:
        if id(part) in shown:
            yield f"{_INDENT * depth}{_path(holder.name, part.path)}", part.size, part.what


def _flat(part: Part, depth: int) -> Iterator[tuple[int, Part]]:
    yield depth, part
    for inner in part.parts:
        yield from _flat(inner, depth + 1)


def _path(name: str, path: str) -> str:
    return f"{name}.{path}" if name.isidentifier() else path


def _described(value: Any, fresh: dict[int, int]) -> tuple[str, Sequence[Part]]:
    torch = sys.modules["torch"]
    kind = type(value).__name__
    if issubclass(type(value), torch.nn.Module):
        gradients = _gradients(value, fresh)
        what = f"{kind}, {units.size(gradients)} of it gradients" if gradients else kind
        return what, parts_of(value, fresh, storage_of)
    if issubclass(type(value), torch.Tensor):
        shape = " x ".join(map(str, value.shape)) or "one number"
        return f"{shape}, {str(value.dtype).removeprefix('torch.')}", ()
    return kind, parts_of(value, fresh, storage_of)


def _gradients(module: Any, fresh: dict[int, int]) -> int:
    sizes = {}
    for parameter in module.parameters():
        gradient = parameter.grad if parameter.is_leaf else None
        storage = storage_of(gradient) if gradient is not None else None
        if storage is not None and storage[0] in fresh:
            sizes[storage[0]] = storage[1]
    return sum(sizes.values())
