"""What goes to the charts in pages, gathered into one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource

from hpu_magic.panels.patches import Event, Rows, changed


class Outbox:
    """Rows and words for models that browsers draw; the models here get them when a page opens."""

    def __init__(self) -> None:
        self.send: Callable[[list[Event]], None] | None = None
        self._rows: dict[ColumnDataSource, Rows] = {}
        self._changes: dict[tuple[Any, str], Any] = {}
        self._sent: dict[tuple[Any, str], Any] = {}

    def append(
        self, source: ColumnDataSource, rows: Sequence[tuple[float | str, ...]], rollover: int
    ) -> None:
        """Add rows to the end of a source, which keeps the newest ``rollover``."""
        for row in rows:
            self._rows_of(source, rollover).append(row)

    def replace(
        self,
        source: ColumnDataSource,
        columns: Mapping[str, Sequence[float | str]],
        rollover: int,
    ) -> None:
        """Give a source other rows."""
        self._rows_of(source, rollover).replace(columns)

    def change(self, model: Any, attribute: str, value: Any) -> None:
        """Set an attribute of a model to what JSON can carry."""
        self._changes[model, attribute] = value

    def forget(self, source: ColumnDataSource) -> None:
        """Drop a source that is drawn no more."""
        self._rows.pop(source, None)

    def flush(self) -> None:
        """Send what was gathered since the last time."""
        events = [changed(model.id, name, value) for (model, name), value in self._changes.items()]
        self._sent |= self._changes
        self._changes.clear()
        taken = (rows.take() for rows in self._rows.values())
        events += [event for event in taken if event is not None]
        if events and self.send is not None:
            self.send(events)

    def restore(self, setter: Any) -> None:
        """Put all that was sent into the models; `setter` is told as the cause."""
        for rows in self._rows.values():
            rows.restore(setter)
        for (model, name), value in self._sent.items():
            model.set_from_json(name, value, setter=setter)

    def _rows_of(self, source: ColumnDataSource, rollover: int) -> Rows:
        if source not in self._rows:
            self._rows[source] = Rows(source, rollover)
        return self._rows[source]
