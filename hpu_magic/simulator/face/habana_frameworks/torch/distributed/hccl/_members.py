"""Who the processes of a group are, and whether one still lives."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Member:
    """A process of a group.

    Attributes
    ----------
    rank : int
        Among all processes, not only the group's.
    host : str
        Processes with the same one see each other's numbers.
    pid : int
    started : str
        When it began, in the system's words: numbers of processes are used again.
    """

    rank: int
    host: str
    pid: int
    started: str

    def to_json(self) -> str:
        """Return the member as text for a store."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Member:
        """Read what `to_json` returned."""
        return cls(**json.loads(text))

    def has_ended(self) -> bool:
        """Tell whether the process is seen to have ended; one of another machine never is."""
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
        """Tell whether the process is seen to be halted, by a signal or a debugger."""
        return self.host == _host() and _state(self.pid)[0] in ("T", "t")

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid})"


def this_process(rank: int) -> Member:
    """Return the member that this process is."""
    return Member(rank, _host(), os.getpid(), _state(os.getpid())[1])


def _host() -> str:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {namespace}".strip()


def _state(pid: int) -> tuple[str, str]:
    """Return a process's state and start; empty where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
