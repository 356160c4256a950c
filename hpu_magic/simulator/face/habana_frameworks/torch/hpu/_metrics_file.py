"""Metrics files, which are written on request or when a trigger fires."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher, EventId

from hpu_magic.simulator import engine

if TYPE_CHECKING:
    from habana_frameworks.torch.hpu.metrics import Metric

FORMATS = ("json", "text")
TRIGGERS = ("process_exit", "mark_step", "metric_change", "user")


class MetricsFile:
    """A file to which each call to `append` adds one record per metric.

    Raises ValueError if the format is not ``"json"`` or ``"text"``.
    """

    def __init__(self, name: str, format: str = "json") -> None:
        if format not in FORMATS:
            raise ValueError(f"Metrics file format must be 'json' or 'text', got {format!r}.")
        self.path: Path | None = None
        self._name = name
        self._format = format
        self._renew_lock()
        # Another thread may have held the lock when the process forked.
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self._writing = threading.Lock()

    def append(self, trigger: str, metrics: Iterable[Metric]) -> None:
        """Append the current statistics of all given metrics; the first call creates the file."""
        records = [_record(metric, trigger) for metric in metrics]
        with self._writing:
            if self.path is None:
                path = _of_this_rank(Path(self._name))
                path.parent.mkdir(parents=True, exist_ok=True)
                self.path = _create(path)
                self.path.write_text("[]" if self._format == "json" else "")
            if self._format == "text":
                with self.path.open("a") as file:
                    file.writelines(map(_as_text, records))
            else:
                _append_json(self.path, records)


def _record(metric: Metric, trigger: str) -> dict[str, Any]:
    return {
        "metric_name": metric.name(),
        "triggered_by": trigger,
        "generated_on": datetime.now().isoformat(),
        "statistics": dict(metric.stats()),
    }


def _append_json(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """Append records by overwriting the closing bracket, so that the file stays valid JSON."""
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        separator = ",\n" if file.tell() > 1 else "\n"
        body = ",\n".join(json.dumps(record, indent=1) for record in records)
        file.write(f"{separator}{body}]".encode())


def _as_text(record: dict[str, Any]) -> str:
    rows = "".join(f"\t{key}: {value}\n" for key, value in record["statistics"].items())
    return (
        f"Metric name: {record['metric_name']}\n"
        f"Triggered by: {record['triggered_by']}\n"
        f"Generated on: {record['generated_on']}\n"
        f"Statistics:\n{rows}\n"
    )


def _of_this_rank(path: Path) -> Path:
    rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")
    return path.with_name(f"{path.stem}-rank{rank}{path.suffix}") if rank else path


def _create(path: Path) -> Path:
    """Create the file, with the first unused suffix of ``.1``, ``.2``, ... if it already exists."""
    number, candidate = 0, path
    while True:
        try:
            candidate.touch(exist_ok=False)
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.name}.{number}")
        else:
            return candidate


def _variable(name: str, default: str = "") -> str:
    """Return the value of ``PT_HPU_METRICS_...`` or, if unset, ``HABANA_PT_METRICS_...``."""
    for prefix in ("PT_HPU_METRICS_", "HABANA_PT_METRICS_"):
        if value := os.environ.get(prefix + name):
            return value
    return default


def _known(values: list[str], known: Sequence[str], variable: str) -> list[str]:
    for value in values:
        if value not in known:
            warnings.warn(
                f"PT_HPU_METRICS_{variable}={value!r} is not supported and is ignored; use "
                f"{' or '.join(known)}.",
                stacklevel=2,
            )
    return [value for value in values if value in known]


def start(metrics: Sequence[Metric]) -> None:
    """Write to ``PT_HPU_METRICS_FILE`` when one of the triggers in the environment fires."""
    name = _variable("FILE")
    if not name:
        return
    format = _known([_variable("FILE_FORMAT", "json")], FORMATS, "FILE_FORMAT")
    listed = _variable("DUMP_TRIGGERS", "process_exit").split(",")
    triggers = _known([trigger.strip() for trigger in listed], TRIGGERS, "DUMP_TRIGGERS")
    file = MetricsFile(name, format[0] if format else "json")

    def dump(trigger: str, metrics: Iterable[Metric]) -> None:
        if engine.load().is_acquired():
            file.append(trigger, metrics)

    dispatcher = EventDispatcher.instance()
    if "process_exit" in triggers:
        dispatcher.subscribe(EventId.PROCESS_EXIT, lambda *_: dump("process_exit", metrics))
    if "mark_step" in triggers:
        dispatcher.subscribe(EventId.MARK_STEP, lambda *_: dump("mark_step", metrics))
    if "metric_change" in triggers:
        for metric in metrics:
            metric.on_metric_change(lambda changed: dump("metric_change", [changed]))
