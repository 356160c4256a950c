"""Rows for charts that a browser draws already, in the words of Bokeh's wire protocol.

``ColumnDataSource.stream`` also keeps every column in this process, looks for
listeners and walks all models of the document, for each row anew. That costs
several times what the message itself does, and takes it from the training that
is being watched. Charts that are written to and never read need only the message.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["fragments", "streamed"]

_HEADER = '{"msgid": "rows", "msgtype": "PATCH-DOC", "num_buffers": 0}'
_METADATA = "{}"


def streamed(
    source_id: str, columns: Mapping[str, Sequence[float | str]], rollover: int
) -> dict[str, Any]:
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
        "data": {
            "type": "map",
            "entries": [[name, [_encoded(one) for one in new]] for name, new in columns.items()],
        },
        "rollover": rollover,
    }


def fragments(events: Iterable[dict[str, Any]]) -> tuple[str, str, str]:
    """Return the header, metadata and content of the message that carries these events."""
    return _HEADER, _METADATA, json.dumps({"events": list(events)}, allow_nan=False)


def _encoded(value: float | str) -> Any:
    if isinstance(value, str) or math.isfinite(value):
        return value
    if math.isnan(value):
        return {"type": "number", "value": "nan"}
    return {"type": "number", "value": "+inf" if value > 0 else "-inf"}
