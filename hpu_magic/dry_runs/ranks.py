"""The ranks of a dry run, and the messages between them.

Rank 0 is started first. Another rank is started when a running rank exchanges a message with it.
Each rank is a process with a connection to this one; `hpu_magic.simulator.dry_run.messages` is the
other end of the connection.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from hpu_magic import units

_POLL = 0.2  # seconds
_NEEDED = 1 << 30  # bytes of this machine's memory that must be free to start a rank
_NORMAL = ("end", "exit")
_STOPPED = ("stopped",)

Start = Callable[[int, int], subprocess.Popen[bytes]]
Reply = tuple[Any, ...]
Channel = tuple[Any, ...]
"""Process group, source, destination and tag of messages, or group, root and number."""


@dataclass(frozen=True)
class _Wait:
    """A rank's wait for another rank."""

    peer: int
    line: str
    does: str  # the verb for the action of the peer
    is_over: Callable[[], bool]
    is_optional: bool = False  # whether the peer may end without this action

    def described(self, rank: int) -> str:
        where = f" in {Path(self.line).name}" if self.line else ""
        return f"rank {rank} waits{where} until rank {self.peer} {self.does} a message"


class Ranks:
    """The running ranks of a dry run.

    Parameters
    ----------
    start
        Starts the process of a rank, which inherits the file descriptor of its connection.
    """

    def __init__(self, start: Start) -> None:
        self._start_process = start
        self._changed = threading.Condition()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []
        self._sent: dict[tuple[Channel, int], Any] = {}
        self._count: Counter[Channel] = Counter()  # messages that were sent
        self._expected: Counter[Channel] = Counter()  # messages that a rank is ready to receive
        self._published: dict[Channel, Any] = {}
        self._waits: dict[int, _Wait] = {}
        self._ended: dict[int, str] = {}
        self._refusals: dict[int, str] = {}
        self._stuck = ""

    def run(self) -> None:
        """Start rank 0."""
        with self._changed:
            self._start(0)

    def have_ended(self) -> bool:
        """Return whether all ranks that were started have ended."""
        return not any(each.is_alive() for each in self._threads)

    def join(self) -> dict[int, int]:
        """Wait until all ranks have ended, and return the exit status of each."""
        for thread in self._threads:  # the list grows until all threads have ended
            thread.join()
        return {rank: each.wait() for rank, each in sorted(self._processes.items())}

    def _start(self, rank: int) -> None:
        if rank in self._processes or rank in self._refusals:
            return
        free = psutil.virtual_memory().available
        if free < _NEEDED and rank:
            self._refusals[rank] = (
                f"Rank {rank} cannot be started: {units.size(free)} of this machine's memory are "
                f"free, and a rank needs about {units.size(_NEEDED)}."
            )
            return
        ours, theirs = Pipe()
        try:
            process = self._start_process(rank, theirs.fileno())
        except RuntimeError:  # the run was interrupted
            return
        finally:
            theirs.close()
        self._processes[rank] = process
        thread = threading.Thread(target=self._serve, args=(rank, process, ours), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, rank: int, process: subprocess.Popen[bytes], connection: Connection) -> None:
        """Answer the requests of a rank until its process has ended."""
        requests: dict[str, Callable[..., Reply | None]] = {
            "send": self._send,
            "expect": self._expect,
            "receive": self._receive,
            "deliver": self._deliver,
            "publish": self._publish,
            "fetch": self._fetch,
            "has_ended": self._has_ended,
            "end": self._end,
        }
        try:
            # The process may have children that keep the connection open.
            while connection.poll(_POLL) or process.poll() is None or connection.poll(0):
                if connection.poll(0):
                    request, *arguments = connection.recv()
                    with self._changed:
                        reply = requests[request](rank, *arguments)
                        self._changed.notify_all()
                    if reply is not None:
                        connection.send(reply)
        except (EOFError, OSError):
            pass
        process.wait()
        with self._changed:
            self._ended.setdefault(rank, "killed")
            self._changed.notify_all()
        connection.close()

    # Requests of ranks. Requests without a result have no reply.

    def _send(self, rank: int, channel: Channel, message: Any) -> None:
        self._count[channel] += 1
        self._sent[channel, self._count[channel]] = message
        self._start(channel[2])

    def _expect(self, rank: int, channel: Channel) -> None:
        self._expected[channel] += 1
        self._start(channel[1])

    def _receive(self, rank: int, channel: Channel, number: int, line: str) -> Reply:
        key = (channel, number)
        reply = self._wait(rank, _Wait(channel[1], line, "sends", lambda: key in self._sent))
        return reply or ("found", self._sent.pop(key))

    def _deliver(self, rank: int, channel: Channel, number: int, line: str) -> Reply:
        def is_expected() -> bool:
            return self._expected[channel] >= number

        return self._wait(rank, _Wait(channel[2], line, "receives", is_expected)) or ("found", None)

    def _publish(self, rank: int, channel: Channel, message: Any) -> None:
        self._published[channel] = message

    def _fetch(self, rank: int, channel: Channel, line: str) -> Reply:
        root = channel[1]
        if root not in self._processes:
            return ("found", None)
        wait = _Wait(root, line, "broadcasts", lambda: channel in self._published, True)
        return self._wait(rank, wait) or ("found", self._published.get(channel))

    def _has_ended(self, rank: int, other: int) -> Reply:
        return ("found", other in self._ended)

    def _end(self, rank: int, how: str) -> None:
        self._ended[rank] = how

    def _wait(self, rank: int, wait: _Wait) -> Reply | None:
        """Wait, and return why the rank cannot continue, or None."""
        self._waits[rank] = wait
        self._changed.notify_all()
        try:
            while not wait.is_over():
                if reply := self._hopeless(rank, wait):
                    return reply
                if wait.is_optional and wait.peer in self._ended:
                    return None
                self._changed.wait(_POLL)
            return None
        finally:
            del self._waits[rank]

    def _hopeless(self, rank: int, wait: _Wait) -> Reply | None:
        """Return why a wait will not end, or None."""
        how = self._ended.get(wait.peer)
        if wait.peer in self._refusals:
            return ("failed", self._refusals[wait.peer])
        if how is not None and how not in _NORMAL:
            return _STOPPED
        if how is not None and not wait.is_optional:
            return ("failed", f"Rank {wait.peer} has ended, but {wait.described(rank)}.")
        if self._processes[rank].poll() is not None:
            return _STOPPED  # nobody reads the reply
        if not self._stuck and all(map(self._cannot_continue, self._processes)):
            waits = [each.described(rank) for rank, each in sorted(self._waits.items())]
            self._stuck = f"No rank can continue: {', and '.join(waits)}."
        return ("failed", self._stuck) if self._stuck else None

    def _cannot_continue(self, rank: int) -> bool:
        wait = self._waits.get(rank)
        if wait is None:
            return rank in self._ended
        return not wait.is_over() and wait.peer not in self._ended
