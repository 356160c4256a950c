"""PyTorch's profiler, extended with bridge events: compilations, fallbacks, synchronizations.

PyTorch's trace already contains the operators, because the simulator runs them on the host. The
simulator does not add device kernels to the trace, because it would have to invent their times.
"""

from __future__ import annotations

import gzip
import inspect
import json
import time
from collections.abc import Callable, Iterable
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

from habana_frameworks.torch import hpu
from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher, EventId, Parameters

import torch

_DEVICE_PROCESS = 0
_SORT_AFTER_HOST = 0x1000000
# Nanoseconds. Smaller timestamps are relative to boot, not to the Unix epoch.
_STEADY_BELOW = 10**18
_RECORDED = (
    EventId.GRAPH_COMPILATION,
    EventId.CPU_FALLBACK,
    EventId.MEMORY_DEFRAGMENTATION,
    EventId.MARK_STEP,
    EventId.CUSTOM_EVENT,
)


_Theirs = torch.profiler.ProfilerActivity


class ProfilerActivity(Enum):
    """Activities to record; each one compares equal to PyTorch's activity of the same name."""

    CPU = 1
    CUDA = 2
    HPU = 3

    @property
    def theirs(self) -> Any:
        """The PyTorch activity; None for `HPU` in releases that do not have it."""
        return getattr(_Theirs, self.name, None)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Theirs) and self.theirs == other)

    def __hash__(self) -> int:
        return hash(self.theirs)


class DebugActivity(IntEnum):
    """Additional activities of the vendor's profiler; the simulator ignores them."""

    SYNAPSE_FUNCTION_CALLS = 1
    BRIDGE_FUNCTION_CALLS = 2


class profile(torch.profiler.profile):
    """A `torch.profiler.profile` that also exports the bridge's events.

    By default, it records both the host and the card. `debug_activities` has no effect.
    """

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        debug_activities: Iterable[DebugActivity] | None = None,
        **arguments: Any,
    ) -> None:
        if activities is None:
            activities = supported_activities()
        super().__init__(activities=_theirs(activities), **arguments)
        self._handles: list[int] = []
        self._events: list[tuple[int, Parameters]] = []

    def start_trace(self) -> None:
        """Start recording."""
        self._events = []
        dispatcher = EventDispatcher.instance()
        self._handles = [dispatcher.subscribe(event) for event in _RECORDED]
        super().start_trace()

    def stop_trace(self) -> None:
        """Stop recording."""
        super().stop_trace()
        dispatcher = EventDispatcher.instance()
        for handle in self._handles:
            dispatcher.process(handle, lambda *event: self._events.append(event))
            dispatcher.unsubscribe(handle)
        self._handles = []

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        """Turn recording of the given activities on or off."""
        super().toggle_collection_dynamic(enable, _theirs(activities))

    def export_chrome_trace(self, path: str, **options: Any) -> Any:
        """Write the trace as JSON, compressed if `path` ends with ``.gz``."""
        result = super().export_chrome_trace(path, **options)
        _add_events(Path(path), self._events)
        return result


def supported_activities() -> set[ProfilerActivity]:
    """Return the activities of the host and the card."""
    return {ProfilerActivity.CPU, ProfilerActivity.HPU}


def _theirs(activities: Iterable[Any]) -> list[Any]:
    """Convert activities to PyTorch's activities; a dict maps each one to its recording options."""

    def converted(activity: Any) -> Any:
        if isinstance(activity, dict):
            return {converted(key): value for key, value in activity.items()}
        return activity.theirs if isinstance(activity, ProfilerActivity) else activity

    return [each for each in map(converted, activities) if each is not None]


def _add_pytorchs_parameters(initialize: Callable[..., None]) -> None:
    """Add PyTorch's options to the signature, because libraries inspect it before passing them."""
    own = inspect.signature(initialize).parameters
    theirs = inspect.signature(torch.profiler.profile.__init__).parameters
    initialize.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*theirs.values(), own["debug_activities"]]
    )


_add_pytorchs_parameters(profile.__init__)


def _add_events(path: Path, events: list[tuple[int, Parameters]]) -> None:
    read: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    with read(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    base = trace.get("baseTimeNanoseconds", 0)
    trace["traceEvents"] += [
        *_metadata(),
        *(_trace_event(timestamp, parameters, base) for timestamp, parameters in events),
    ]
    if hpu.is_initialized():
        trace["deviceProperties"].append(
            {
                "id": 0,
                "name": hpu.get_device_name(),
                "totalGlobalMem": hpu.memory_stats()["Limit"],
            }
        )
    with read(path, "wt", encoding="utf-8") as file:
        json.dump(trace, file)


def _metadata() -> list[dict[str, Any]]:
    row = {"ph": "M", "pid": _DEVICE_PROCESS, "tid": 0, "ts": 0}
    return [
        {**row, "name": "process_name", "args": {"name": "hpu"}},
        {**row, "name": "process_labels", "args": {"labels": "HPU 0 (simulated)"}},
        {**row, "name": "process_sort_index", "args": {"sort_index": _SORT_AFTER_HOST}},
        {**row, "name": "thread_name", "args": {"name": "bridge"}},
    ]


def _trace_event(timestamp: int, parameters: Parameters, base: int) -> dict[str, Any]:
    details = dict(parameters)
    if timestamp < _STEADY_BELOW:
        timestamp += time.time_ns() - time.monotonic_ns()
    kind, name = details.pop("event", "custom"), details.pop("name", "")
    return {
        "ph": "X",
        "cat": "Runtime",
        "name": f"{kind} {name}".strip(),
        "pid": _DEVICE_PROCESS,
        "tid": 0,
        "ts": (timestamp - base) / 1000,
        "dur": float(details.pop("duration", 0)),
        "args": details,
    }


def install() -> None:
    """Replace PyTorch's profiler class and its activities."""
    torch.profiler.profile = torch.profiler.profiler.profile = profile
    torch.profiler.ProfilerActivity = ProfilerActivity
    torch.profiler.supported_activities = supported_activities
