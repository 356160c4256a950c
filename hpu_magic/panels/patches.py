"""Rows for charts that browsers draw already, in the words of Bokeh's wire protocol.

``ColumnDataSource.stream`` also keeps every column in this process, looks for
listeners and walks all models of the document, for each row anew. That costs
several times what the message itself does, and takes it from the training that
is being watched. Charts that are written to and never read need only the message,
and the rows themselves for pages that are opened later.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

Event = dict[str, Any]
"""A change of a document, as JSON."""

_Row = tuple[float | str, ...]


class Rows:
    """The rows of one ``ColumnDataSource``: those that browsers lack, and all that they keep.

    Parameters
    ----------
    source
        The source, whose own columns stay as they are.
    rollover
        Rows that it keeps.
    """

    def __init__(self, source: Any, rollover: int) -> None:
        self.source = source
        self._rollover = rollover
        self._new: list[_Row] = []
        self._kept: deque[_Row] = deque(zip(*source.data.values(), strict=True), maxlen=rollover)
        self._whole = False

    def append(self, row: _Row) -> None:
        """Add a row, a value for each column in order."""
        self._new.append(row)

    def replace(self, columns: Mapping[str, Sequence[float | str]]) -> None:
        """Have these columns instead."""
        self._new.clear()
        self._kept = deque(zip(*columns.values(), strict=True), maxlen=self._rollover)
        self._whole = True

    def take(self) -> Event | None:
        """Return the change that brings what is new, None where nothing is."""
        new, self._new = self._new, []
        whole, self._whole = self._whole, False
        self._kept.extend(new)
        if whole:
            return changed(self.source.id, "data", _map(self._columns(self._kept)))
        if not new:
            return None
        return streamed(self.source.id, self._columns(new), self._rollover)

    def restore(self, setter: Any) -> None:
        """Give the source all rows that browsers have; `setter` is told as the cause."""
        self.source.set_from_json("data", self._columns(self._kept), setter=setter)

    def _columns(self, rows: Sequence[_Row] | deque[_Row]) -> dict[str, list[float | str]]:
        names = self.source.column_names
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def streamed(source_id: str, columns: Mapping[str, Sequence[float | str]], rollover: int) -> Event:
    """Return the event that appends rows to a ``ColumnDataSource``.

    Parameters
    ----------
    source_id
        The source's ``id``.
    columns
        The new values of every column; a number that is not finite is drawn as a gap.
    rollover
        Rows that the source keeps.
    """
    return {
        "kind": "ColumnsStreamed",
        "model": {"id": source_id},
        "attr": "data",
        "data": _map(columns),
        "rollover": rollover,
    }


def changed(model_id: str, attribute: str, value: Any) -> Event:
    """Return the event that sets an attribute of a model to what JSON can carry."""
    return {"kind": "ModelChanged", "model": {"id": model_id}, "attr": attribute, "new": value}


def _map(columns: Mapping[str, Sequence[float | str]]) -> dict[str, Any]:
    entries = [[name, [_encoded(one) for one in new]] for name, new in columns.items()]
    return {"type": "map", "entries": entries}


def _encoded(value: float | str) -> Any:
    if isinstance(value, str) or math.isfinite(value):
        return value
    if math.isnan(value):
        return {"type": "number", "value": "nan"}
    return {"type": "number", "value": "+inf" if value > 0 else "-inf"}
