"""What ``%hpu_workers`` shows, and what a parallel cell leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpu_magic import units
from hpu_magic.parallel.workers import Workers
from hpu_magic.runtime.present.table import Table


class WorkersReport(Table):
    """The workers of a notebook.

    Attributes
    ----------
    count : int
        How many there are; 0 without any.
    profile : str or None
        The IPython profile that launched them.
    """

    def __init__(
        self,
        lines: Sequence[Sequence[str]],
        profile: str | None = None,
        lost: int = 0,
        stopped: int | None = None,
    ) -> None:
        self.count = len(lines)
        self.profile = profile
        self._lines = lines
        self._lost = lost
        self._stopped = stopped

    def title(self) -> str:
        """Return the headline."""
        if self._stopped is not None:
            workers = f"{self._stopped} worker{'s' if self._stopped > 1 else ''}"
            return f"Stopped {workers}." if self._stopped else "There were no workers to stop."
        if not self.count:
            return "No workers: %%hpu_parallel -n 4 starts four and runs its cell on them."
        workers = f"{self.count} worker{'s' if self.count > 1 else ''}"
        return workers + (f" of the profile {self.profile}" if self.profile else "")

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return ("rank", "card", "memory", "host", "pid", "state")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return a line for each rank."""
        return self._lines

    def notes(self) -> Sequence[str]:
        """Say what mends a group that is incomplete."""
        if self._lost:
            return ("%hpu_workers restart starts all ranks anew (their variables are lost).",)
        return ()


def workers_report(workers: Workers | None, stopped: int | None = None) -> WorkersReport:
    """Ask the workers for their state, and wait two seconds at most for each.

    Parameters
    ----------
    workers
        None where there are none.
    stopped
        How many were stopped just now; None where that was not requested.
    """
    if workers is None:
        return WorkersReport((), stopped=stopped)
    states, busy = workers.states(), workers.busy()
    lines = []
    for rank, introduction in enumerate(workers.introductions):
        state: Any = states[rank]
        card, memory = "", ""
        if state is not None:
            card = "none" if state.card is None else f"HPU {state.card}"
            memory = "" if state.in_use is None else units.size(state.in_use)
        what = "idle"
        if rank in workers.lost:
            what = workers.how_ended(rank)
        elif rank in busy or state is None:
            what = "busy with the cell before"
        lines.append((str(rank), card, memory, introduction.host, str(introduction.pid), what))
    return WorkersReport(lines, workers.profile, len(workers.lost))
