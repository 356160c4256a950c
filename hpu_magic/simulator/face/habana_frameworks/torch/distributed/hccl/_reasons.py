"""Why a collective failed: the ranks of a group tell each other, and who is silent is named."""

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
_SEEN_TO_END = 3.0  # seconds until the system has cleared away a process that was killed
_TOLD = 1.0  # seconds in which ranks whose time is up at once tell each other
_ANSWERED = 2.0  # seconds that the store may take


class Reasons:
    """Finds the reasons for one process in one group.

    Parameters
    ----------
    group : str
        Name of the process group.
    store : torch.distributed.Store
        Reaches the other ranks of the group.
    rank : int
        Of this process, in the group.
    members : list of Member
        The group's processes, in the order of their ranks in it.
    """

    def __init__(self, group: str, store: Any, rank: int, members: list[Member]) -> None:
        self._group = group
        self._store = store
        self._rank = rank
        self._members = members
        self._silent = False

    def explain(
        self,
        call: str,
        words: str,
        asked: str,
        others: dict[int, str],
        where_is: Callable[[int], str],
    ) -> str:
        """Return a sentence for a collective that failed.

        Parameters
        ----------
        call : str
            Its name, and its number in the group.
        words : str
            What the transport says; it names addresses, not ranks.
        asked : str
            What this rank called.
        others : dict
            What other ranks called that cannot go with it.
        where_is : callable
            Asks a rank where it is; an empty answer is none.
        """
        timed_out = _TIMED_OUT.search(words)
        self._tell(call, bool(timed_out))
        where = f"{call} in process group {self._group!r}"
        me = self._members[self._rank]
        if others:
            called = _listed([f"{self._members[rank]} {what}" for rank, what in others.items()])
            return (
                f"{where} failed on {me}: this rank called {asked}, and {called}. Let all ranks "
                "call the same, with tensors of one size and type."
            )
        if timed_out:
            seconds = int(timed_out[1]) / 1000
            waits = f"{where} did not end within {seconds:g} s on {me}"
            if line := users_line():
                waits = f"{waits}, which is at {line}"
            return f"{waits}: {self._late(call, where_is)}."
        return f"{where} failed on {me}: {self._lost(call, words, where_is)}."

    def _lost(self, call: str, words: str, where_is: Callable[[int], str]) -> str:
        """Say who has gone, once a connection has."""
        until = time.monotonic() + _SEEN_TO_END
        while True:
            if gone := [str(member) for member in self._others() if member.has_ended()]:
                return f"{_listed(gone)} ended in the middle of it. Start all ranks again"
            told = self._told()
            if told and any(late for _, late in told.values()):
                return self._late(call, where_is)
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        if told:
            rank, (failed, _) = next(iter(told.items()))
            return f"{self._members[rank]} failed in {failed} first ({words})"
        return f"a rank has left the group, or cannot be reached any more ({words.rstrip('.')})"

    def _late(self, call: str, where_is: Callable[[int], str]) -> str:
        """Say who has not come, once the time is up."""
        time.sleep(_TOLD)
        told = self._told()
        parts = []
        for rank, member in enumerate(self._members):
            if rank == self._rank:
                continue
            if member.has_ended():
                parts.append(f"{member} has ended")
            elif member.is_stopped():
                parts.append(f"{member} did not come to it and is stopped")
            elif told is None:
                continue
            elif rank not in told:
                line = where_is(rank)
                parts.append(
                    f"{member} did not come to it" + (f" and is at {line}" if line else "")
                )
            elif told[rank][0] != call:
                parts.append(f"{member} was in {told[rank][0]} instead")
        if not parts and told is None:
            return "the rank that keeps the store, rank 0 as a rule, does not answer either"
        return _listed(parts) or "all ranks came to it, and none got an answer in time"

    def _others(self) -> Iterator[Member]:
        return (member for rank, member in enumerate(self._members) if rank != self._rank)

    def _tell(self, call: str, late: bool) -> None:
        self._ask(lambda: self._store.set(f"failed/{self._rank}", json.dumps([call, late])))

    def _told(self) -> dict[int, tuple[str, bool]] | None:
        """Return in which call each of the others has failed so far, and whether by time.

        None where the rank that keeps the store does not answer.
        """
        told: dict[int, tuple[str, bool]] = {}

        def read() -> None:
            for rank in range(len(self._members)):
                key = f"failed/{rank}"
                if rank != self._rank and self._store.check([key]):
                    call, late = json.loads(self._store.get(key))
                    told[rank] = (call, late)

        return told if self._ask(read) else None

    def _ask(self, question: Callable[[], None]) -> bool:
        """Tell whether the store has answered; who keeps it may have ended or hang."""
        if self._silent:
            return False
        answered: list[bool] = []

        def ask() -> None:
            with contextlib.suppress(RuntimeError):
                question()
                answered.append(True)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_ANSWERED)
        self._silent = not answered
        return bool(answered)


def users_line() -> str:
    """Return file and line of the user's code that the main thread is at; empty if in none."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and _OF_A_LIBRARY.search(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def _listed(parts: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
