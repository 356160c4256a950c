"""Device memory of this process: the statistics, and what a piece of code did to them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.tensors import tensors_in
from hpu_magic.runtime.device.widths import width
from hpu_magic.runtime.measure.peak import Peak
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.present.table import Table

_BYTES = {"Limit", "InUse", "MaxInUse", "MaxAllocSize"}
_WORDS = {
    "Limit": "size of the card's memory",
    "InUse": "in use",
    "MaxInUse": "most in use so far",
    "NumAllocs": "allocations",
    "NumFrees": "frees",
    "ActiveAllocs": "allocations that are not freed",
    "MaxAllocSize": "largest allocation",
    "TotalSystemAllocs": "allocations since the start",
    "TotalSystemFrees": "frees since the start",
    "TotalActiveAllocs": "not freed since the start",
}
_FEWEST_NAMES = 12
TRACEBACK = "the last traceback"
_NO_CARD = (
    "This process has taken no card yet, so there is nothing to measure; the first hpu tensor "
    "takes one."
)


@dataclass(repr=False)
class MemoryReport(Table):
    """The device's memory statistics, in words and with the vendor's keys.

    Attributes
    ----------
    stats : dict of str to int
        As ``torch.hpu.memory_stats()`` gives them, in its order: bytes and counts. Empty as
        long as the process has no card.
    """

    stats: dict[str, int]

    def title(self) -> str:
        """Return the headline."""
        return f"Memory of {device.label()}"

    def columns(self) -> Sequence[str]:
        """Return the columns: what it is, the value, and its key in ``memory_stats()``."""
        return ("what", "value", "key")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return a line for each statistic; those without words of ours have their key alone."""
        return [
            (_WORDS.get(key, ""), units.size(value) if key in _BYTES else str(value), key)
            for key, value in self.stats.items()
        ]

    def notes(self) -> Sequence[str]:
        """Say why there are no statistics."""
        return () if self.stats else (_NO_CARD,)


@dataclass(repr=False)
class MemoryUse(Report):
    """What a cell or a ``with`` block did to the device's memory; all in bytes.

    Attributes
    ----------
    before, after, peak : int
        In use when it began, when it ended, and at most in between.
    left : dict of str to int
        What it left behind: bytes of new tensors by the variable that holds them.
    limit : int
        The size of the card's memory; 0 when no card was taken.
    """

    before: int = 0
    after: int = 0
    peak: int = 0
    limit: int = 0
    left: dict[str, int] = field(default_factory=dict)

    def title(self) -> str:
        """Return the headline."""
        return f"Memory of this cell on {device.label()}"

    def rows(self) -> Sequence[Row]:
        """Return before, after and peak, then what was left behind, largest first."""
        if not self.limit:
            return ()
        change = self.after - self.before
        rows = [
            ("before", units.size(self.before)),
            (
                "after",
                f"{units.size(self.after)} ({'+' if change >= 0 else ''}{units.size(change)})",
            ),
            ("peak", f"{units.size(self.peak)} of {units.size(self.limit)}"),
        ]
        largest = sorted(self.left.items(), key=lambda item: -item[1])
        rows += [(f"left in {name}", units.size(size)) for name, size in largest[:_FEWEST_NAMES]]
        rest = largest[_FEWEST_NAMES:]
        if rest:
            names = f"left in {len(rest)} other variables"
            rows.append((names, units.size(sum(size for _, size in rest))))
        return rows

    def notes(self) -> Sequence[str]:
        """Say when nothing was left, or when there is no card."""
        if not self.limit:
            return (_NO_CARD,)
        return () if self.left else ("It left no new tensors on the device.",)


def memory() -> MemoryReport:
    """Return the memory statistics of this process's card; takes no card."""
    stats = sys.modules["torch"].hpu.memory_stats() if device.taken() else {}
    return MemoryReport(dict(stats))


class MemoryWatch:
    """Measures what happens to the device's memory inside a ``with`` block.

    The peak statistic starts anew with the block; nothing else is changed.

    Parameters
    ----------
    namespace : mapping
        The variables among which new tensors are looked for.
    hidden : mapping
        Names in it that are not the user's.
    keep : callable
        Called with the finished report.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        hidden: Mapping[str, Any] | None = None,
        keep: Callable[[MemoryUse], object] = lambda report: None,
    ) -> None:
        self.use = MemoryUse()
        self._namespace = namespace
        self._hidden = hidden or {}
        self._keep = keep
        self._known: dict[int, Any] = {}
        self._peak = Peak()

    def __enter__(self) -> MemoryUse:
        if device.taken():
            device.synchronize()
            self.use.before = sys.modules["torch"].hpu.memory_stats()["InUse"]
            self._known = dict(_storages(list(_variables(self._namespace, self._hidden).values())))
        self._peak.open()
        return self.use

    def __exit__(self, *error: object) -> None:
        """Leave the measurement to `summary`, which comes after the result was displayed."""

    def summary(self) -> MemoryUse:
        """Measure what is left, and return the completed report."""
        if device.taken():
            device.synchronize()
            stats = sys.modules["torch"].hpu.memory_stats()
            self.use.after, self.use.limit = stats["InUse"], stats["Limit"]
            self.use.peak = self._peak.close()
            self.use.left = self._left_behind()
        self._keep(self.use)
        return self.use

    def _left_behind(self) -> dict[str, int]:
        return held(self._namespace, self._hidden, set(self._known))


def held(
    namespace: Mapping[str, Any], hidden: Mapping[str, Any], known: Iterable[int] = ()
) -> dict[str, int]:
    """Return the bytes on the device by the variable that holds them; shared ones count once.

    Parameters
    ----------
    namespace : mapping
        The user's variables, and IPython's ``Out``.
    hidden : mapping
        Names in it that are not the user's.
    known : iterable of int
        Identities of storages that do not count.
    """
    found: dict[str, int] = {}
    seen = set(known)
    for name, value in _variables(namespace, hidden).items():
        for key, storage in _storages([value]):
            if key not in seen:
                seen.add(key)
                found[name] = found.get(name, 0) + storage[0]
    return found


def _variables(namespace: Mapping[str, Any], hidden: Mapping[str, Any]) -> dict[str, Any]:
    variables = {
        name: value
        for name, value in list(namespace.items())
        if not name.startswith("_") and name not in hidden and name not in ("In", "Out")
    }
    shown = namespace.get("Out", {})
    variables.update({f"Out[{number}]": value for number, value in dict(shown).items()})
    last = sys.exc_info()[1] or getattr(sys, "last_value", None)
    frames = getattr(last, "__traceback__", None)
    while frames is not None:
        local = frames.tb_frame.f_locals
        if local is not namespace and local.get("__name__") != "__main__":
            variables.setdefault(TRACEBACK, []).append(dict(local))
        frames = frames.tb_next
    return variables


def _storages(values: Sequence[Any]) -> list[tuple[int, tuple[int, Any]]]:
    """Return (identity, (bytes, weak reference)) of the device storages that `values` hold.

    The weak reference keeps the identity from being used again for another storage.
    """
    torch = sys.modules["torch"]
    from torch.multiprocessing.reductions import StorageWeakRef

    found = []
    for tensor in tensors_in(values, into_objects=True):
        if tensor.device.type == "hpu" and tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            reference = StorageWeakRef(storage)
            taken = storage.nbytes() * width(tensor.dtype) // tensor.dtype.itemsize
            found.append((reference.cdata, (taken, reference)))
    return found
