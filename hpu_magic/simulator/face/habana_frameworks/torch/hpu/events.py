"""Events: moments in a stream."""

from __future__ import annotations

from typing import Any

import torch


class Event(torch.Event):
    """A moment in a stream's work.

    Parameters
    ----------
    enable_timing : bool
        Whether `elapsed_time` may be asked.
    """

    def __new__(cls, enable_timing: bool = False, **kwargs: Any) -> Event:
        return super().__new__(cls, device="hpu", enable_timing=enable_timing)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Return the milliseconds between this event and `end_event`.

        Raises
        ------
        RuntimeError
            One of the events has not been recorded.
        """
        if not self.event_id or not end_event.event_id:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return super().elapsed_time(end_event)

    def __repr__(self) -> str:
        return f"<htorch.hpu.Event {self.event_id:#x}>"
