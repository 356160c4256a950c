"""Record compilations from `start` to `stop`, and write them to files.

Other stages of the vendor's execution pipeline do not exist in the simulator.
"""

from __future__ import annotations

import collections
import json
import os
from pathlib import Path

from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher, EventId, Parameters

_handle: int | None = None
_recorded: list[tuple[int, Parameters]] = []


def start() -> None:
    """Start recording; this has no effect if recording has already started."""
    global _handle
    if _handle is None:
        _handle = EventDispatcher.instance().subscribe(EventId.GRAPH_COMPILATION)


def stop() -> None:
    """Stop recording, and keep the events for `flush`."""
    global _handle
    _fetch()
    if _handle is not None:
        EventDispatcher.instance().unsubscribe(_handle)
        _handle = None


def flush() -> None:
    """Write the events to ``events_pid<pid>.json`` and ``metrics_pid<pid>.json``.

    Both files are written to the working directory. The first file is a Chrome trace; the second
    contains the number of compilations and their total time in microseconds.
    """
    _fetch()
    process = os.getpid()
    events = [_event(process, timestamp, dict(parameters)) for timestamp, parameters in _recorded]
    totals: collections.Counter[str] = collections.Counter()
    for event in events:
        totals["count"] += 1
        totals["duration_us"] += event["dur"]
    _write(f"events_pid{process}.json", {"displayTimeUnit": "ns", "traceEvents": events})
    _write(f"metrics_pid{process}.json", {"compile": dict(totals)} if events else {})
    print(f"Low-overhead profile of process {process} written to {Path.cwd()}")
    _recorded.clear()


def _fetch() -> None:
    if _handle is not None:
        EventDispatcher.instance().process(_handle, lambda *event: _recorded.append(event))


def _event(process: int, timestamp: int, details: dict[str, str]) -> dict[str, object]:
    return {
        "ph": "X",
        "name": f"compile {details.get('name', '')}".strip(),
        "pid": process,
        "tid": 0,
        "ts": timestamp / 1000,
        "dur": float(details.get("duration", 0)),
    }


def _write(name: str, content: object) -> None:
    Path(name).write_text(json.dumps(content) + "\n", encoding="utf-8")


def _forget_parent() -> None:
    global _handle
    _handle = None
    _recorded.clear()


os.register_at_fork(after_in_child=_forget_parent)
