"""Device memory of this process: the statistics, and how a cell or block changes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.peak import Peak, since_reset
from hpu_magic.runtime.device.tensors import tensors_in
from hpu_magic.runtime.measure.holders import (
    HolderTable,
    VariableHolder,
    holders,
    lines,
    storage_of,
)
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.present.table import Table

_BYTES = {"Limit", "InUse", "MaxInUse", "MaxAllocSize"}
_WORDS = {
    "Limit": "size of the card's memory",
    "InUse": "in use",
    "MaxInUse": "peak since the last reset",
    "NumAllocs": "allocations",
    "NumFrees": "frees",
    "ActiveAllocs": "allocations that are not freed",
    "MaxAllocSize": "largest allocation",
    "TotalSystemAllocs": "allocations since the start",
    "TotalSystemFrees": "frees since the start",
    "TotalActiveAllocs": "not freed since the start",
}
_MOST_NAMES = 12
_MOST_OPENED = 3  # maximum number of variables whose modules are listed
_MOST_PARTS = 5
TRACEBACK = "the last traceback"
_FEW = 64 << 10
_ELSEWHERE = (
    "Memory that no variable holds is kept for a later backward pass (torch.no_grad() avoids "
    "this) or by objects that are not searched."
)
_NO_CARD = (
    "This process has no card yet, so there is nothing to measure; the first hpu tensor acquires "
    "one."
)


@dataclass(repr=False)
class MemoryReport(Table):
    """The device's memory statistics, with descriptions and the vendor's names."""

    stats: dict[str, int]
    """The values from ``torch.hpu.memory_stats()``, in the same order. The peak is measured since
    the user's last reset, and is not affected by hpu_magic's resets. Empty without a card."""
    holders: list[VariableHolder] = field(default_factory=list)
    """The variables that hold memory, with their modules."""
    everything: bool = False  #: list all variables and modules instead of only the largest ones
    remarks: list[str] = field(default_factory=list)  #: further notes

    def title(self) -> str:
        """Return the headline."""
        return f"Memory of {device.label()}"

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return ("what", "value", "key")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return one line per statistic; unknown statistics have no description."""
        return [
            (_WORDS.get(key, ""), units.size(value) if key in _BYTES else f"{value:,}", key)
            for key, value in self.stats.items()
        ]

    def notes(self) -> Sequence[str]:
        """Return the notes, and a further note if there are no statistics."""
        return self.remarks if self.stats else [*self.remarks, _NO_CARD]

    def __repr__(self) -> str:
        held = f"\n{self._held()!r}" if self.holders else ""
        return super().__repr__() + held

    def html_body(self) -> str:
        """Return the statistics as HTML, followed by the variables."""
        return super().html_body() + (self._held()._repr_html_() if self.holders else "")

    def _held(self) -> HolderTable:
        return HolderTable(self.holders, self.everything)


@dataclass(repr=False)
class MemoryUse(Report):
    """The device memory used by a cell or a ``with`` block, in bytes."""

    before: int = 0
    after: int = 0
    """Memory in use at the start and at the end."""
    peak: int = 0  # peak memory in use during the block
    limit: int = 0  # size of the card's memory; 0 without a card
    left: dict[str, int] = field(default_factory=dict)
    """Size of new tensors in bytes, by the variable that holds them."""
    holders: list[VariableHolder] = field(default_factory=list)
    """These variables with their modules."""
    everything: bool = False  # list all variables and modules instead of only the largest ones

    def title(self) -> str:
        """Return the headline."""
        return f"Memory of this cell on {device.label()}"

    def rows(self) -> Sequence[Row]:
        """Return the memory before and after the block, the peak, and the largest new tensors."""
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
        most: int | None = _MOST_PARTS
        names, opened = _MOST_NAMES, _MOST_OPENED
        if self.everything:
            names, opened, most = len(largest), len(largest), None
        inside = {holder.name: holder for holder in self.holders[:opened]}
        for name, size in largest[:names]:
            rows.append((f"left in {name}", units.size(size)))
            parts = lines(inside[name], most) if name in inside else ()
            rows += [(path, f"{units.size(part)} ({what})") for path, part, what in parts]
        rest = largest[names:]
        if rest:
            others = f"left in {len(rest)} other variables"
            rows.append((others, units.size(sum(size for _, size in rest))))
        if self._elsewhere:
            rows.append(("left elsewhere", units.size(self._elsewhere)))
        return rows

    def notes(self) -> Sequence[str]:
        """Return an explanation if there are no new tensors or there is no card."""
        if not self.limit:
            return (_NO_CARD,)
        if self._elsewhere:
            return (_ELSEWHERE,)
        return () if self.left else ("The cell left no new tensors on the device.",)

    @property
    def _elsewhere(self) -> int:
        """Bytes that no variable holds; small amounts count as 0, because sizes are rounded up."""
        unnamed = self.after - self.before - sum(self.left.values())
        return unnamed if unnamed > max(_FEW, 0.05 * (self.after - self.before)) else 0


def memory_of(
    namespace: Mapping[str, Any] | None = None,
    hidden: Mapping[str, Any] | None = None,
    *,
    everything: bool = False,
) -> MemoryReport:
    """Return the memory statistics of this process's card, without acquiring a card.

    Parameters
    ----------
    namespace : mapping, optional
        The user's variables, used to list those that hold memory.
    hidden : mapping, optional
        Names in ``namespace`` that do not belong to the user.
    everything : bool
        Whether to list all variables and modules instead of only the largest ones.
    """
    if not device.taken():
        return MemoryReport({})
    stats = dict(sys.modules["torch"].hpu.memory_stats())
    stats["MaxInUse"] = since_reset()
    held = holders(_variables(namespace or {}, hidden or {}))
    return MemoryReport(stats, held, everything)


class MemoryWatch:
    """Measures the device memory of a ``with`` block.

    The block resets the device's peak statistic, ``torch.hpu.max_memory_allocated()``. `memory_of`
    still reports the peak since the user's last reset.

    Parameters
    ----------
    namespace : mapping
        The variables that may hold new tensors.
    hidden : mapping
        Names in ``namespace`` that do not belong to the user.
    keep : callable
        Called with the finished report.
    everything : bool
        Whether to list all variables and modules instead of only the largest ones.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        hidden: Mapping[str, Any] | None = None,
        keep: Callable[[MemoryUse], object] = lambda report: None,
        *,
        everything: bool = False,
    ) -> None:
        self.use = MemoryUse(everything=everything)
        self._namespace = namespace
        self._hidden = hidden or {}
        self._keep = keep
        self._known: dict[int, Any] = {}
        self._peak = Peak()

    def __enter__(self) -> MemoryUse:
        if device.taken():
            device.synchronize()
            self.use.before = device.in_use()
            variables = _variables(self._namespace, self._hidden)
            self._known = _storages(list(variables.values()))
        self._peak.open()
        return self.use

    def __exit__(self, *error: object) -> None:
        """Do nothing, because `summary` measures the memory after the result has been displayed."""

    def summary(self) -> MemoryUse:
        """Measure the memory after the block and return the report."""
        device.synchronize()
        memory = device.memory()
        if memory is not None:
            self.use.after, self.use.limit = memory.in_use, memory.limit
            self.use.peak = self._peak.close()
            variables = _variables(self._namespace, self._hidden)
            self.use.holders = holders(variables, self._known)
            self.use.left = {holder.name: holder.size for holder in self.use.holders}
        self._keep(self.use)
        return self.use


def held(
    namespace: Mapping[str, Any], hidden: Mapping[str, Any], known: Iterable[int] = ()
) -> dict[str, int]:
    """Return the device memory of each variable in bytes; shared memory is counted once.

    ``namespace`` includes IPython's ``Out``. Names in ``hidden`` and storages in ``known`` are not
    counted.
    """
    variables = _variables(namespace, hidden)
    return {holder.name: holder.size for holder in holders(variables, known)}


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


def _storages(values: Sequence[Any]) -> dict[int, Any]:
    """Return weak references to the device storages in `values`, keyed by storage id."""
    storages = filter(None, map(storage_of, tensors_in(values, into_objects=True)))
    return {identity: reference for identity, _, reference in storages}
