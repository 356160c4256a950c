"""Streams without an effect, because simulated work is complete when a call returns."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch.hpu.events import Event

import torch
from hpu_magic.simulator import engine


class Stream(torch.Stream):
    """A queue of device work; `device` and `priority` are ignored."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        """Create a stream, or look up an existing one from the values of `get_stream_info`."""
        if kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device="hpu")

    @property
    def hpu_stream(self) -> int:
        """The handle of the stream."""
        return self.stream_id

    def id(self) -> int:
        """Return the ID of the stream; 0 is the default stream."""
        return self.stream_id

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event`, or a new event, in this stream, and return the event."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Make later work on this stream wait for `event`."""
        event.wait(self)

    def __repr__(self) -> str:
        return f"<torch.hpu.Stream device={self.device} hpu_stream={self.stream_id:#x}>"


class StreamContext:
    """Context manager that makes a stream the current stream."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: torch.Stream | None = None

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            self._previous = current_stream()
            set_stream(self.stream)
        return self.stream

    def __exit__(self, kind: type[BaseException] | None = None, *error: object) -> None:
        if self._previous is None:
            return
        try:
            if kind is None:  # otherwise, this error would hide an error raised in the block
                _run_before(self._previous)
        finally:
            torch.accelerator.set_stream(self._previous)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context manager that makes `stream` the current stream; None has no effect."""
    return StreamContext(stream)


def set_stream(stream: torch.Stream) -> None:
    """Set the current stream of this thread; in lazy mode, execute recorded operations first."""
    _run_before(stream)
    torch.accelerator.set_stream(stream)


def current_stream(device: Any = None) -> Stream:
    """Return the current stream of this thread."""
    return _stream(torch.accelerator.current_stream().stream_id)


def default_stream(device: Any = None) -> Stream:
    """Return the default stream."""
    return _stream(0)


def get_stream_info(stream: torch.Stream) -> tuple[int, int, int]:
    """Return a stream's ID, device index and device type (as an integer).

    To get the same stream, pass them to `Stream` as ``stream_id``, ``device_index`` and
    ``device_type``.
    """
    return stream.stream_id, stream.device_index, stream.device_type


def record_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """Mark `tensor` as used by `stream`, for the allocator."""
    tensor.record_stream(stream)


def _run_before(stream: torch.Stream) -> None:
    if stream != torch.accelerator.current_stream():
        engine.load().run_recorded()


def _stream(number: int) -> Stream:
    kind = torch.Stream(device="hpu").device_type
    return Stream(stream_id=number, device_index=0, device_type=kind)
