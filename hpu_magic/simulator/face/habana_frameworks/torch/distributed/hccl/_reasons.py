"""Explain failed collectives: ranks report failures to each other and name unresponsive ranks."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from habana_frameworks.torch.distributed.hccl._members import Member

_TIMED_OUT = re.compile(r"[Tt]imed out.*?(\d+) ?ms")
_OF_A_LIBRARY = re.compile(r"/(site-packages|python3\.\d+|hpu_magic/\w+)/|<frozen ")
_EXIT_TIMEOUT = 3.0  # timeout in seconds for the system to remove a killed process
_REPORT_DELAY = 1.0  # seconds to wait for reports from ranks that time out at the same moment
_STORE_TIMEOUT = 2.0  # seconds


class Reasons:
    """Explains the failures of one rank in one process group.

    `members` are the processes of the group, ordered by their rank in the group; `rank` is this
    process's rank in the group.
    """

    def __init__(self, group: str, store: Any, rank: int, members: list[Member]) -> None:
        self._group = group
        self._store = store
        self._rank = rank
        self._members = members
        self._store_is_lost = False

    def explain(
        self,
        call: str,
        transport_error: str,
        own_call: str,
        others: dict[int, str],
        where_is: Callable[[int], str],
    ) -> str:
        """Return a sentence that explains a failed collective.

        Parameters
        ----------
        call : str
            Name of the collective, and its sequence number in the group.
        transport_error : str
            Error message from the transport, which contains addresses instead of ranks.
        own_call : str
            This rank's call with its arguments.
        others : dict
            Calls of other ranks that do not match this rank's call.
        where_is : callable
            Returns the line that a rank is executing, or an empty string if it does not respond.
        """
        timed_out = _TIMED_OUT.search(transport_error)
        self._report(call, bool(timed_out))
        where = f"{call} in process group {self._group!r}"
        me = self._members[self._rank]
        if others:
            calls = _listed([f"{self._members[rank]} {other}" for rank, other in others.items()])
            return (
                f"{where} failed on {me}: this rank called {own_call}, and {calls}. Call the same "
                "collective on all ranks, with tensors of the same size and dtype."
            )
        if timed_out:
            seconds = int(timed_out[1]) / 1000
            timeout = f"{where} did not finish within {seconds:g} s on {me}"
            if line := users_line():
                timeout = f"{timeout}, which is at {line}"
            return f"{timeout}: {self._late(call, where_is)}."
        return f"{where} failed on {me}: {self._lost(call, transport_error, where_is)}."

    def _lost(self, call: str, transport_error: str, where_is: Callable[[int], str]) -> str:
        """Describe which ranks have exited, after a connection was lost."""
        until = time.monotonic() + _EXIT_TIMEOUT
        while True:
            if ended := [str(member) for member in self._others() if member.has_ended()]:
                return f"{_listed(ended)} ended during the call. Start all ranks again"
            failures = self._failures()
            if failures and any(late for _, late in failures.values()):
                return self._late(call, where_is)
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        if failures:
            rank, (failed, _) = next(iter(failures.items()))
            return f"{self._members[rank]} failed in {failed} first ({transport_error})"
        return f"a rank has left the group or is unreachable ({transport_error.rstrip('.')})"

    def _late(self, call: str, where_is: Callable[[int], str]) -> str:
        """Describe which ranks have not joined the call, after a timeout."""
        time.sleep(_REPORT_DELAY)
        failures = self._failures()
        parts = []
        for rank, member in enumerate(self._members):
            if rank == self._rank:
                continue
            if member.has_ended():
                parts.append(f"{member} has ended")
            elif member.is_stopped():
                parts.append(f"{member} did not join the call and is stopped")
            elif failures is None:
                continue
            elif rank not in failures:
                line = where_is(rank)
                parts.append(
                    f"{member} did not join the call" + (f" and is at {line}" if line else "")
                )
            elif failures[rank][0] != call:
                parts.append(f"{member} was in {failures[rank][0]} instead")
        if not parts and failures is None:
            return "the rank that hosts the store, usually rank 0, does not respond either"
        return _listed(parts) or "all ranks joined the call, but none received a response in time"

    def _others(self) -> Iterator[Member]:
        return (member for rank, member in enumerate(self._members) if rank != self._rank)

    def _report(self, call: str, late: bool) -> None:
        self._use_store(lambda: self._store.set(f"failed/{self._rank}", json.dumps([call, late])))

    def _failures(self) -> dict[int, tuple[str, bool]] | None:
        """Return the other ranks' failed calls, and whether each of them timed out.

        Returns None if the rank that hosts the store does not respond.
        """
        failures: dict[int, tuple[str, bool]] = {}

        def read() -> None:
            for rank in range(len(self._members)):
                key = f"failed/{rank}"
                if rank != self._rank and self._store.check([key]):
                    call, late = json.loads(self._store.get(key))
                    failures[rank] = (call, late)

        return failures if self._use_store(read) else None

    def _use_store(self, request: Callable[[], None]) -> bool:
        """Send a request, and return whether the store responded; its process may have exited."""
        if self._store_is_lost:
            return False
        answered: list[bool] = []

        def send() -> None:
            with contextlib.suppress(RuntimeError):
                request()
                answered.append(True)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        thread.join(_STORE_TIMEOUT)
        self._store_is_lost = not answered
        return bool(answered)


def users_line() -> str:
    """Return the file and line of the main thread's innermost user code, or an empty string."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and _OF_A_LIBRARY.search(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def _listed(parts: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
