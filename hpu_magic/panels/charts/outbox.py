"""Collect changes to the charts into one message in Bokeh's wire protocol.

For each row, ``ColumnDataSource.stream`` stores every column in this process, looks for listeners
and visits all models in the document. This takes several times longer than sending a message. If
this process never reads the models of a chart, sending the message is enough. A page that is opened
later receives all rows from the run's record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource

Event = dict[str, Any]
"""A change to a document, as JSON."""

Columns = Mapping[str, Sequence[float | str]]
_Row = tuple[float | str, ...]


class _Pending:
    """The changes to a source that have not been sent yet.

    ``data`` returns all rows as columns; the source keeps the last ``rollover`` rows.
    """

    def __init__(self, data: Callable[[], Columns], rollover: int) -> None:
        self._data = data
        self._rollover = rollover
        self.rows: list[_Row] = []
        self.replaced = False

    def data(self) -> Columns:
        return {name: column[-self._rollover :] for name, column in self._data().items()}

    def take(self, source: ColumnDataSource) -> Event | None:
        """Return an event with the unsent rows, or None if there are none."""
        rows, self.rows = self.rows, []
        replaced, self.replaced = self.replaced, False
        if replaced:
            return changed(source.id, "data", _map(self.data()))
        if not rows:
            return None
        return {
            "kind": "ColumnsStreamed",
            "model": {"id": source.id},
            "attr": "data",
            "data": _map(columns_of(source, rows)),
            "rollover": self._rollover,
        }


class Outbox:
    """New rows and attributes for the models in pages.

    The models in this process are not updated until a page is opened.
    """

    def __init__(self) -> None:
        self.send: Callable[[list[Event]], None] | None = None
        self._sources: dict[ColumnDataSource, _Pending] = {}
        self._changes: dict[tuple[Any, str], Any] = {}
        self._sent: dict[tuple[Any, str], Any] = {}

    def follow(self, source: ColumnDataSource, data: Callable[[], Columns], rollover: int) -> None:
        """Register a source that keeps the newest ``rollover`` rows of ``data()``."""
        self._sources.setdefault(source, _Pending(data, rollover))

    def append(self, source: ColumnDataSource, rows: Sequence[_Row]) -> None:
        """Add rows to the end of a registered source; ``data()`` already contains them."""
        self._sources[source].rows += rows

    def replace(self, source: ColumnDataSource, data: Callable[[], Columns], rollover: int) -> None:
        """Replace all rows of a source with those of ``data()``."""
        self.follow(source, data, rollover)
        self._sources[source].replaced = True

    def change(self, model: Any, attribute: str, value: Any) -> None:
        """Set an attribute of a model to a JSON value."""
        self._changes[model, attribute] = value

    def forget(self, source: ColumnDataSource) -> None:
        """Drop a source that is no longer drawn."""
        self._sources.pop(source, None)

    def flush(self) -> None:
        """Send everything collected since the last call."""
        events = [changed(model.id, name, value) for (model, name), value in self._changes.items()]
        self._sent |= self._changes
        self._changes.clear()
        taken = (pending.take(source) for source, pending in self._sources.items())
        events += [event for event in taken if event is not None]
        if events and self.send is not None:
            self.send(events)

    def restore(self, setter: Any) -> None:
        """Update the models for a page that is being opened; ``setter`` is passed on to Bokeh."""
        self.flush()  # open pages receive the same rows as the new page
        for source, pending in self._sources.items():
            source.set_from_json("data", pending.data(), setter=setter)
        for (model, name), value in self._sent.items():
            model.set_from_json(name, value, setter=setter)


def columns_of(source: ColumnDataSource, rows: Iterable[_Row]) -> dict[str, list[float | str]]:
    """Return rows as the columns of a source."""
    kept = list(rows)
    return {name: [row[place] for row in kept] for place, name in enumerate(source.column_names)}


def changed(model_id: str, attribute: str, value: Any) -> Event:
    """Return the event that sets an attribute of a model to a JSON value."""
    return {"kind": "ModelChanged", "model": {"id": model_id}, "attr": attribute, "new": value}


def _map(columns: Columns) -> dict[str, Any]:
    entries = [[name, [_encoded(value) for value in values]] for name, values in columns.items()]
    return {"type": "map", "entries": entries}


def _encoded(value: float | str) -> Any:
    if isinstance(value, str) or math.isfinite(value):
        return value
    if math.isnan(value):
        return {"type": "number", "value": "nan"}
    return {"type": "number", "value": "+inf" if value > 0 else "-inf"}
