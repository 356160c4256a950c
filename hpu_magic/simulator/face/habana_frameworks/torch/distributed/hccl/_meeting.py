"""Wait for the other ranks of a process group that is being created, unless they have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from habana_frameworks.torch.distributed.hccl._members import Member, this_process

import torch.distributed as dist

_LONGEST_PAUSE = 0.1  # seconds between two requests to the store
_EXIT_TIMEOUT = 3.0  # timeout in seconds for the system to remove a killed process

_met: dict[int, Member] = {}
"""The processes of the default group, by rank."""


class Meeting:
    """The ranks of one process group while it is being created.

    `rank` is the rank of this process in the group, and `ranks` are the group's ranks among all
    processes, or an empty list for the default group. Ctrl-C interrupts a wait, which
    consists of short requests to the store.
    """

    def __init__(self, group: str, store: Any, rank: int, size: int, ranks: Sequence[int]) -> None:
        self._group = group
        self._store = store
        self._ranks = [*ranks] or [*range(size)]
        self._me = this_process(self._ranks[rank])
        if not ranks:
            _met.clear()

    @property
    def rank(self) -> int:
        """The rank of this process among all processes."""
        return self._me.rank

    def members(self) -> list[Member]:
        """Publish this process as a member, and wait until all other ranks have done the same.

        Raises
        ------
        torch.distributed.DistBackendError
            A rank has ended, or has not published itself within the timeout of the store.
        """
        self._store.set(f"member/{self._me.rank}", self._me.to_json())
        for rank in self._ranks:
            _met[rank] = Member.from_json(self.value(f"member/{rank}", rank))
        self._check()
        return [_met[rank] for rank in self._ranks]

    def value(self, key: str, rank: int) -> bytes:
        """Wait until a rank has written a value to the store, and return it.

        Raises
        ------
        torch.distributed.DistBackendError
            A rank has ended, or the value was not written within the timeout of the store.
        """
        limit = self._store.timeout.total_seconds()
        until = time.monotonic() + limit
        pause = 0.001
        while True:
            try:
                if self._store.check([key]):
                    return bytes(self._store.get(key))
            except dist.DistNetworkError:
                self._check(_EXIT_TIMEOUT)  # the rank that hosts the store may have ended
                raise
            self._check()
            if time.monotonic() > until:
                raise self._error(f"rank {rank} did not join it within {limit:g} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _check(self, seconds: float = 0.0) -> None:
        """Raise an error if one of the known members ends within the next few seconds."""
        until = time.monotonic() + seconds
        others = [_met[rank] for rank in self._ranks if rank in _met]
        while True:
            if ended := [str(each) for each in others if each.has_ended()]:
                have = "have" if len(ended) > 1 else "has"
                raise self._error(f"{' and '.join(ended)} {have} ended. Start all ranks again")
            if time.monotonic() >= until:
                return
            time.sleep(0.02)

    def _error(self, reason: str) -> Exception:
        return dist.DistBackendError(
            f"Process group {self._group!r} could not be created on {self._me}: {reason}."
        )
