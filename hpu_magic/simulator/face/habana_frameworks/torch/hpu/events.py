"""Events, which mark points in the work of a stream."""

from __future__ import annotations

from typing import Any

import torch


class Event(torch.Event):
    """A marker in a stream's work; `elapsed_time` requires ``enable_timing=True``."""

    def __new__(cls, enable_timing: bool = False, **kwargs: Any) -> Event:
        """Create an event without recording it."""
        return super().__new__(cls, "hpu", enable_timing=enable_timing)

    def __init__(self, enable_timing: bool = False, **kwargs: Any) -> None:
        # PyTorch does not measure the time between instances of subclasses of torch.Event.
        self._time = torch.Event("hpu", enable_timing=enable_timing)

    def record(self, stream: torch.Stream | None = None) -> None:
        """Record the event in `stream`, which defaults to the current stream."""
        stream = torch.accelerator.current_stream() if stream is None else stream
        super().record(stream)
        self._time.record(stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Make later work on `stream` (by default, the current stream) wait for the event."""
        super().wait(torch.accelerator.current_stream() if stream is None else stream)

    def query(self) -> bool:
        """Return whether all work captured by the event has completed."""
        return bool(super().query())

    def synchronize(self) -> None:
        """Wait until all work captured by the event has completed."""
        super().synchronize()

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Return the time between this event and `end_event`, in milliseconds.

        Raises RuntimeError if either event has not been recorded.
        """
        end = end_event._time if isinstance(end_event, Event) else end_event
        if not self._time.event_id or not end.event_id:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return float(self._time.elapsed_time(end))

    def __repr__(self) -> str:
        return f"<htorch.hpu.Event {self.event_id:#x}>"
