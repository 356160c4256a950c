"""Events: moments in a stream."""

from __future__ import annotations

from typing import Any

import torch


class Event:
    """A moment in a stream's work.

    Parameters
    ----------
    enable_timing : bool
        Whether `elapsed_time` may be asked.
    """

    def __init__(self, enable_timing: bool = False, **kwargs: Any) -> None:
        # Held, not inherited: PyTorch's event functions take no subclass of torch.Event.
        self.event = torch.Event("hpu", enable_timing=enable_timing)

    def record(self, stream: torch.Stream | None = None) -> None:
        """Mark the moment when `stream`, or the current one, has done its work so far."""
        self.event.record(torch.accelerator.current_stream() if stream is None else stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Make all later work of `stream`, or the current one, wait for the event."""
        self.event.wait(torch.accelerator.current_stream() if stream is None else stream)

    def query(self) -> bool:
        """Tell whether all work before the event is done."""
        return bool(self.event.query())

    def synchronize(self) -> None:
        """Wait until all work before the event is done."""
        self.event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds between this event and `end_event`.

        Raises
        ------
        RuntimeError
            One of the events has not been recorded.
        """
        if not self.event.event_id or not end_event.event.event_id:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return float(self.event.elapsed_time(end_event.event))

    def __repr__(self) -> str:
        return f"<htorch.hpu.Event {self.event.event_id:#x}>"
