"""The report of ``%hpu_workers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpu_magic import units
from hpu_magic.errors import HPUError
from hpu_magic.parallel.workers import RESTART, Workers
from hpu_magic.runtime.present.table import Table


class WorkersReport(Table):
    """The workers of a notebook.

    Attributes
    ----------
    count : int
        Number of workers.
    profile : str or None
        The IPython profile that launched the workers.
    outputs : dict of str to list
        Variables that were copied back, each as a list indexed by rank.
    """

    def __init__(
        self,
        lines: Sequence[Sequence[str]],
        profile: str | None = None,
        lost: int = 0,
        stopped: int | None = None,
        run: Callable[..., WorkersReport] | None = None,
        outputs: Mapping[str, list[Any]] | None = None,
    ) -> None:
        self.count = len(lines)
        self.outputs = dict(outputs or {})
        self._run = run
        self.profile = profile
        self._lines = lines
        self._lost = lost
        self._stopped = stopped

    def run(self, code: str, **options: Any) -> WorkersReport:
        """Run code on the workers with the options of `hpu_magic.workers`.

        Raises
        ------
        HPUError
            The workers have been stopped.
        """
        if self._run is None:
            raise HPUError(
                "The workers have been stopped: start them again with hpu_magic.workers('on')."
            )
        return self._run(code, **options)

    def title(self) -> str:
        """Return the headline."""
        if self._stopped is not None:
            workers = f"{self._stopped} worker{'s' if self._stopped > 1 else ''}"
            return f"Stopped {workers}." if self._stopped else "No workers were running."
        if not self.count:
            return (
                "No workers: %%hpu_workers --cards 4 starts four workers and runs its cell on them."
            )
        workers = f"{self.count} worker{'s' if self.count > 1 else ''}"
        return workers + (f" of the profile {self.profile}" if self.profile else "")

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return ("rank", "card", "memory", "host", "pid", "state")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return a row for each rank."""
        return self._lines

    def notes(self) -> Sequence[str]:
        """Return advice on restarting the workers if some of them have ended."""
        return (RESTART,) if self._lost else ()


def workers_report(
    workers: Workers | None, stopped: int | None = None, **others: Any
) -> WorkersReport:
    """Request the states of the workers, waiting at most two seconds for each.

    `stopped` is the number of workers that were just stopped, or None if no stop was requested.
    """
    if workers is None:
        return WorkersReport((), stopped=stopped, **others)
    states, busy = workers.states(), workers.busy()
    lines = []
    for rank, introduction in enumerate(workers.introductions):
        state: Any = states[rank]
        card, memory = "", ""
        if state is not None:
            card = "none" if state.card is None else f"HPU {state.card}"
            memory = "" if state.in_use is None else units.size(state.in_use)
        activity = "idle"
        if rank in workers.lost:
            activity = workers.how_ended(rank)
        elif rank in busy or state is None:
            activity = "busy with the previous cell"
        lines.append((str(rank), card, memory, introduction.host, str(introduction.pid), activity))
    return WorkersReport(lines, workers.profile, len(workers.lost), **others)
