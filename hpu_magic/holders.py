"""Processes that hold cards, and messages that list them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from hpu_magic import sessions
from hpu_magic.program_name import program_name


@dataclass(frozen=True)
class Holder:
    """A process that holds a card.

    `command` is the name of its notebook, or its program and script, such as ``python train.py``.
    The command has no arguments unless `monitor.processes.with_arguments` has added them.
    """

    pid: int  # 0 if the process is in another PID namespace, for example in a container
    command: str
    user: str | None  # the owner's login name, if it has been read
    idle: float | None = None  # seconds since the last cell ended, or None without a session
    fit: sessions.Fit | None = None

    def described(self) -> str:
        """Return the name and activity: ``first.ipynb, idle for 2 h``."""
        return ", ".join(filter(None, (self.command, sessions.activity(self.idle, self.fit))))

    def named(self) -> str:
        """Return the PID, name and activity: ``process 41 (first.ipynb, idle for 2 h)``."""
        if self.pid == os.getpid():
            return f"this process ({self.pid})"
        return f"process {self.pid} ({self.described()})" if self.pid else self.described()


def holder(pid: int) -> Holder:
    """Return the process `pid` as a holder, without looking up its user."""
    if not pid:
        return Holder(0, "a process outside this PID namespace", None)
    session = sessions.session(pid)
    try:
        name = program_name(pid, session)
    except PermissionError:
        return Holder(pid, "a process of another user", None)
    if session is None:
        return Holder(pid, name, None)
    return Holder(pid, name, None, session.idle, session.fit)


def listed(held: Iterable[tuple[str, Holder]]) -> str:
    """Return the cards with their holders: ``HPU 0 by process 41 (first.ipynb, idle for 2 h)``.

    The holder that has been idle the longest comes first.
    """
    ordered = sorted(held, key=lambda pair: -(pair[1].idle or 0.0))
    return ", ".join(f"{label} by {holder.named()}" for label, holder in ordered)


def refusal(held: Iterable[tuple[str, Holder]], cards: str = "Cards are") -> str:
    """Return the error message for a process that cannot acquire a card, without the final period.

    `held` contains pairs of a card's label and its holder; the message starts with `cards`.
    """
    return (
        f"{cards} held ({listed(held)}): shut down a kernel or end a process that holds a card, "
        "then try again"
    )
