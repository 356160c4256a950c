"""Identity and state of the processes in a group."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Member:
    """A process in a group.

    `rank` is the rank among all processes. `host` identifies the machine and the PID namespace;
    process IDs can be compared only between members with the same host. `started` is the start time
    of the process; it is needed because the operating system reuses process IDs.
    """

    rank: int
    host: str
    pid: int
    started: str

    def to_json(self) -> str:
        """Return the member as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Member:
        """Create a member from the result of `to_json`."""
        return cls(**json.loads(text))

    def has_ended(self) -> bool:
        """Return whether the process has exited; always False for a process on another host."""
        if self.host != _host():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        state, started = _state(self.pid)
        return state in ("Z", "X") or started != self.started

    def is_stopped(self) -> bool:
        """Return whether a signal or debugger has stopped the process (False on another host)."""
        return self.host == _host() and _state(self.pid)[0] in ("T", "t")

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid})"


def this_process(rank: int) -> Member:
    """Return the member for this process."""
    return Member(rank, _host(), os.getpid(), _state(os.getpid())[1])


def _host() -> str:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {namespace}".strip()


def _state(pid: int) -> tuple[str, str]:
    """Return the state and start time of a process, or empty strings if they are unavailable."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
