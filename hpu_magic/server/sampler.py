"""The card sampler, which is shared by all clients of this server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from logging import Logger
from typing import Any, Protocol

from hpu_magic.server.history import History
from hpu_magic.server.long_history import LongHistory
from hpu_magic.server.reader_process import ReadError

SHORTEST, LONGEST = 0.5, 60.0
"""Allowed range for a client's sampling interval, in seconds."""

DEFAULT_INTERVAL = 2.0
LINGER_INTERVAL = 5.0
"""Seconds between samples if no client is connected but one recently made a request."""

# Without clients, the pause is at least _RESTRAINT times the duration of a reading, but at most
# _RAREST times the `unattended` interval.
_RESTRAINT = 100
_RAREST = 2.5

_MEASUREMENTS = ("memory_used", "utilization", "temperature", "power", "clock")

Record = dict[str, Any]
Listener = Callable[[bytes], None]


class Reader(Protocol):
    """An object that reads the cards."""

    async def read(self) -> Record:
        """Return a snapshot whose holders have ``ancestors``."""

    async def stop(self) -> None:
        """Release the resources used for reading."""


class CardSampler:
    """Takes samples while clients are connected, stores them, and sends new ones to listeners.

    Parameters
    ----------
    reader : Reader
        Object that reads the cards; it may raise `ReadError`.
    join : callable
        Function that adds the server's information about holders to a record.
    log : Logger
        Logger for failures.
    past : LongHistory, optional
        History that receives every sample.
    unattended : float
        Sampling interval in seconds while no client is connected; 0 disables sampling.
    """

    def __init__(
        self,
        reader: Reader,
        join: Callable[[Record], Awaitable[None]],
        log: Logger,
        past: LongHistory | None = None,
        unattended: float = 0.0,
    ) -> None:
        self._reader = reader
        self._join = join
        self._log = log
        self.past = past or LongHistory()
        self._unattended = unattended
        self._history = History()
        self._history_message: bytes | None = None
        self._latest: Record | None = None
        self._begun = 0.0
        self._took = 0.0
        self._missing = False
        self._listeners: dict[Listener, float] = {}
        self._linger_until = 0.0
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether samples are currently being taken."""
        return self._task is not None and not self._task.done()

    def latest(self, max_age: float) -> Record | None:
        """Return the last sample if it is not older than `max_age` seconds."""
        return self._latest if time.monotonic() - self._begun <= max_age else None

    def greeting(self, interval: float) -> list[bytes]:
        """Return the messages for a new client: the history, and the last sample if recent."""
        if self._history_message is None:
            self._history_message = _encode(self._history.message())
        record = self.latest(interval)
        return [self._history_message] + ([_snapshot_message(record)] if record else [])

    def subscribe(self, listener: Listener, interval: float = DEFAULT_INTERVAL) -> None:
        """Call `listener` with the message for each new sample.

        The shortest interval applies to all listeners. Subscribe again to change the interval.
        """
        self._listeners[listener] = interval
        self._wake()

    def unsubscribe(self, listener: Listener) -> None:
        """Stop calling `listener`."""
        self._listeners.pop(listener, None)
        self._changed.set()

    def begin(self) -> None:
        """Start taking samples without clients if `unattended` is set."""
        if self._unattended:
            self._wake()

    def linger(self, seconds: float) -> None:
        """Keep taking samples for this number of seconds, even without clients."""
        self._linger_until = max(self._linger_until, time.monotonic() + seconds)
        self._wake()

    async def fresh(self, max_age: float = 0.0, *, attended: bool = True) -> Record:
        """Return a sample that is at most `max_age` seconds old, taking a new one if necessary.

        Samples taken without clients are not added to the fine history.
        """
        oldest = time.monotonic() - max_age
        async with self._reading:
            if self._latest is None or self._begun < oldest:
                await self._sample(attended=attended)
        assert self._latest is not None
        return self._latest

    async def stop(self) -> None:
        """Stop taking samples, and stop the reader."""
        self._listeners.clear()
        self._linger_until = self._unattended = 0.0
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._reader.stop()

    def _wake(self) -> None:
        self._changed.set()
        if not self.running:
            self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def _attended(self) -> bool:
        return bool(self._listeners) or time.monotonic() < self._linger_until

    def _interval(self) -> float | None:
        """Return the current interval between samples in seconds, or None if none are needed."""
        if self._listeners:
            return min(self._listeners.values())
        if self._attended:
            return LINGER_INTERVAL
        if not self._unattended:
            return None
        # Read a slow driver less often, but still often enough to avoid gaps in the history.
        pause = max(self._unattended, _RESTRAINT * self._took)
        return min(pause, _RAREST * self._unattended)

    async def _run(self) -> None:
        # A client may connect while the reader is stopping.
        while self._interval() is not None:
            await self._sample_while_wanted()
            async with self._reading:
                if self._interval() is None:
                    await self._reader.stop()

    async def _sample_while_wanted(self) -> None:
        while (interval := self._interval()) is not None:
            started = time.monotonic()
            try:
                await self.fresh(interval / 2, attended=self._attended)
            except Exception:  # noqa: BLE001
                # Do not raise, because the next sample may succeed and clients are waiting for it.
                self._log.exception("hpu_magic could not take a sample of the cards.")
            await self._pause(started)

    async def _pause(self, started: float) -> None:
        """Wait until the next sample is due, which depends on the current listeners."""
        while (interval := self._interval()) is not None:
            remaining = started + interval - time.monotonic()
            if remaining <= 0:
                return
            self._changed.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), remaining)

    async def _sample(self, *, attended: bool = True) -> None:
        begun = time.monotonic()
        try:
            record = await self._reader.read()
            self._missing = False
        except ReadError as error:
            # Log only one warning for a series of failures, because there can be many.
            if not self._missing:
                self._log.warning("hpu_magic missed a sample of the cards: %s", error)
            self._missing = True
            record = self._missed(str(error))
        await self._join(record)
        self._keep(record, attended)
        self._begun, self._took = begun, time.monotonic() - begun

    def _keep(self, record: Record, attended: bool) -> None:
        self._latest = record
        self.past.observe(record)
        if attended:
            self._history.append(record)
            self._history_message = None
        if self._listeners:
            message = _snapshot_message(record)
            for listener in list(self._listeners):
                listener(message)

    def _missed(self, reason: str) -> Record:
        """Return a sample with the same cards as the last sample, but without values."""
        before = self._latest or {"source": "none", "cards": []}
        unknown: Record = {"error": reason, "holders": [], **dict.fromkeys(_MEASUREMENTS)}
        return {
            "time": round(time.time(), 3),
            "source": before["source"],
            "reason": reason,
            "cards": [{**card, **unknown} for card in before["cards"]],
        }


def _snapshot_message(record: Record) -> bytes:
    return _encode({"type": "snapshot", **record})


def _encode(message: Record) -> bytes:
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
