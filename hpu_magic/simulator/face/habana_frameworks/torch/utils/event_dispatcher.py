"""Deliver device events to subscribers, either to a callback or on request.

An event has a timestamp in nanoseconds and a list of (key, value) pairs of strings:

``event``
    The kind of event: ``graph_compilation``, ``cpu_fallback``, ``host_synchronization``, ...
``name``
    The recipe that was compiled, or the operator that fell back to the CPU or caused a host read.
``duration``
    The duration in microseconds.
``file``, ``line``
    The line of Python code that caused the event, if any.
``shapes``
    The input shapes that caused a compilation.
"""

from __future__ import annotations

import atexit
import collections
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from hpu_magic.simulator import engine

Parameters = list[tuple[str, str]]
Callback = Callable[[int, Parameters], object]

_POLL_SECONDS = 0.05
_MOST_WAITING = 10_000


class EventId(IntEnum):
    """Kinds of events. Host synchronizations have the kind `CUSTOM_EVENT`."""

    GRAPH_COMPILATION = 0
    CPU_FALLBACK = 1
    CACHE_HIT = 2
    CACHE_MISS = 3
    MEMORY_DEFRAGMENTATION = 4
    MARK_STEP = 5
    PROCESS_EXIT = 6
    DEVICE_ACQUIRED = 7
    CUSTOM_EVENT = 8


_NATIVE = {
    "graph_compilation": EventId.GRAPH_COMPILATION,
    "cpu_fallback": EventId.CPU_FALLBACK,
    "recipe_cache_hit": EventId.CACHE_HIT,
    "recipe_cache_miss": EventId.CACHE_MISS,
    "memory_defragmentation": EventId.MEMORY_DEFRAGMENTATION,
    "mark_step": EventId.MARK_STEP,
    "device_acquired": EventId.DEVICE_ACQUIRED,
}
_FROM_DEVICE = frozenset(_NATIVE.values()) | {EventId.CUSTOM_EVENT}


@dataclass
class _Subscription:
    event_id: EventId
    callback: Callback | None
    waiting: collections.deque[tuple[int, Parameters]] = field(
        default_factory=lambda: collections.deque(maxlen=_MOST_WAITING)
    )


class EventDispatcher:
    """Delivers device events to subscribers; `instance` returns the process's dispatcher.

    The device only records events while there are subscribers, in a bounded buffer. A thread calls
    the callbacks within 50 ms, and so does each ``mark_step``. For subscriptions without a
    callback, `process` delivers the events.
    """

    _instance: EventDispatcher | None = None

    def __init__(self) -> None:
        self._subscriptions: dict[int, _Subscription] = {}
        self._handles = itertools.count(1)
        self._lock = threading.RLock()
        self._position = 0  # position of the next event to fetch from the device
        self._thread: threading.Thread | None = None

    @classmethod
    def instance(cls) -> EventDispatcher:
        """Return the dispatcher of this process."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def subscribe(self, event_id: EventId, callback: Callback | None = None) -> int:
        """Subscribe to future events of one kind, and return a handle.

        Pass the handle to `process` and `unsubscribe`. `callback` is called as
        ``callback(timestamp, [(key, value), ...])``; without a callback, events are queued until
        `process` is called.
        """
        native = engine.load()
        with self._lock:
            self._fetch()  # earlier events belong to other subscriptions
            if event_id in _FROM_DEVICE:
                native.listen(True)
            handle = next(self._handles)
            self._subscriptions[handle] = _Subscription(EventId(event_id), callback)
            if callback is not None and event_id in _FROM_DEVICE:
                self._serve()
        return handle

    def unsubscribe(self, handle: int) -> None:
        """Deliver pending events, and end the subscription if it is active."""
        with self._lock:
            subscription = self._subscriptions.get(handle)
            if subscription is None:
                return
            self._deliver(subscription, subscription.callback)
            if self._subscriptions.pop(handle, None) and subscription.event_id in _FROM_DEVICE:
                engine.load().listen(False)

    def process(self, handle: int, callback: Callback | None = None) -> None:
        """Call `callback`, or the subscription's callback, for each event since the last call.

        Raises KeyError if the subscription does not exist.
        """
        with self._lock:
            if handle not in self._subscriptions:
                raise KeyError(
                    f"{handle!r} is not the handle of a subscription; use a value returned by "
                    "subscribe()."
                )
            subscription = self._subscriptions[handle]
            self._deliver(subscription, callback or subscription.callback)

    def publish(self, event_id: EventId, parameters: Iterable[tuple[str, object]] = ()) -> None:
        """Deliver a custom event to the subscribers of its kind."""
        event = (time.time_ns(), [(key, str(value)) for key, value in parameters])
        with self._lock:
            self.deliver()
            for subscription in tuple(self._subscriptions.values()):
                if subscription.event_id == event_id:
                    subscription.waiting.append(event)
            self.deliver()

    def deliver(self) -> None:
        """Call the callbacks of all subscriptions with pending events, in this thread."""
        if not self._subscriptions:
            return
        with self._lock:
            self._fetch()
            for subscription in tuple(self._subscriptions.values()):
                if subscription.waiting and subscription.callback is not None:
                    self._call_all(subscription, subscription.callback)

    def _fetch(self) -> None:
        """Fetch new device events, and queue each event for the subscriptions to its kind."""
        self._position, events = engine.load().take_events(self._position)
        for event in events:
            kind = _NATIVE.get(event[1], EventId.CUSTOM_EVENT)
            for subscription in self._subscriptions.values():
                if subscription.event_id == kind:
                    subscription.waiting.append((event[3], _parameters(event)))

    def _deliver(self, subscription: _Subscription, callback: Callback | None) -> None:
        if callback is not None:
            self._fetch()
            self._call_all(subscription, callback)

    @staticmethod
    def _call_all(subscription: _Subscription, callback: Callback) -> None:
        while subscription.waiting:
            timestamp, parameters = subscription.waiting.popleft()
            _call(callback, timestamp, parameters)

    def _serve(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._poll, name="hpu-events", daemon=True)
            self._thread.start()

    def _poll(self) -> None:
        while True:
            time.sleep(_POLL_SECONDS)
            with self._lock:
                if not any(
                    each.callback and each.event_id in _FROM_DEVICE
                    for each in self._subscriptions.values()
                ):
                    self._thread = None
                    return
                self.deliver()


def _parameters(event: tuple[int, str, str, int, int, str, int, str]) -> Parameters:
    _, kind, name, _, nanoseconds, file, line, detail = event
    parameters = [("event", kind), ("name", name), ("duration", f"{nanoseconds / 1000:g}")]
    if file:
        parameters += [("file", file), ("line", str(line))]
    if detail:
        parameters.append(("shapes", detail))
    return parameters


def _call(callback: Callback, timestamp: int, parameters: Parameters) -> None:
    try:
        callback(timestamp, parameters)
    except Exception:  # errors of a subscriber must not affect the device or other subscribers
        logging.getLogger("habana_frameworks.torch").exception(
            "A subscriber to device events failed"
        )


def _forget_parent() -> None:
    EventDispatcher._instance = None


os.register_at_fork(after_in_child=_forget_parent)
atexit.register(lambda: EventDispatcher.instance().publish(EventId.PROCESS_EXIT))
