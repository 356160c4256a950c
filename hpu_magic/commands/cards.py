"""Manage workers on several cards, and run code on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hpu_magic import extras, notebook
from hpu_magic.commands.parameters import Names, Numbers
from hpu_magic.errors import HPUError

if TYPE_CHECKING:
    from hpu_magic.parallel.workers_report import WorkersReport

GRACE = 5.0


def workers(
    switch: Literal["on", "off", "restart"] | None = None,
    code: str | None = None,
    *,
    cards: int | None = None,
    profile: str | None = None,
    ranks: Numbers = None,
    push: Names = None,
    output: Names = None,
    grace: float = GRACE,
) -> WorkersReport:
    """List, start, restart or stop workers, one per card, or run code on them.

    Workers keep their variables between runs. They have the environment variables that torchrun
    sets, so that ``init_process_group("hccl")`` and ``Trainer(devices=N)`` work as in a script.

    Parameters
    ----------
    switch : {"on", "off", "restart"}, optional
        Start, stop or restart the workers; by default, list them.
    code : str, optional
        Python code to run on the workers, which are started if none are running.
    cards : int, optional
        Number of workers to start, one per card; by default, one per free card.
    profile : str, optional
        An IPython profile that launches the workers, for example with SLURM, MPI or SSH.
    ranks : sequence of int, optional
        Run the code on these ranks only.
    push : sequence of str, or dict, optional
        Variables to copy to the workers before the code runs.
    output : sequence of str, optional
        Variables to copy back afterwards, as lists in rank order.
    grace : float
        Seconds that the other ranks may keep running after a rank has failed.

    Returns
    -------
    WorkersReport
        ``outputs`` contains the variables listed in `output`; ``run(code)`` runs more code.

    Raises
    ------
    HPUError
        Too few cards are free, or an argument is invalid.
    RanksFailedError
        The code failed on a rank.
    """
    check_installed()
    from hpu_magic.parallel import session
    from hpu_magic.parallel.workers_report import workers_report

    if cards is not None and cards < 1:
        raise HPUError(f"--cards must be at least 1, got {cards}.")
    if code is not None:
        if switch is not None:
            raise HPUError(f"switch={switch!r} cannot be combined with code: pass only one.")
        outputs = run_on_workers(
            code, cards=cards, profile=profile, ranks=ranks, push=push, output=output, grace=grace
        )
        return workers_report(session.workers(), run=_run, outputs=outputs)
    if ranks is not None or push is not None or (output is not None):
        raise HPUError(
            "--ranks, --push and --output NAMES require code to run: use %%hpu_workers as the "
            "first line of a cell."
        )
    if switch is None and (cards is not None or profile is not None):
        switch = "on"
    if switch == "on":
        session.start(cards, profile)
    elif switch == "restart":
        session.restart()
    elif switch == "off":
        # No variable may refer to the workers: an interrupt's traceback would keep them alive.
        return workers_report(None, session.stop())
    return workers_report(session.workers(), run=_run)


def run_on_workers(
    code: str,
    number: int | None = None,
    *,
    cards: int | None = None,
    profile: str | None = None,
    ranks: Sequence[int] | None = None,
    push: Sequence[str] | Mapping[str, Any] | None = None,
    output: Sequence[str] | None = None,
    grace: float = GRACE,
) -> dict[str, list[Any]]:
    """Run code on the workers, and return the variables in `output` as lists in rank order.

    `number` is the cell number shown in tracebacks.
    """
    from IPython.display import display

    from hpu_magic.panels.front_end import in_notebook
    from hpu_magic.panels.rank_table import RanksView
    from hpu_magic.parallel import session
    from hpu_magic.parallel.output import NotebookOutput, TerminalOutput
    from hpu_magic.parallel.run import CellRun

    if grace < 0:
        raise HPUError(f"--grace must be at least 0 seconds, got {grace:g}.")
    values = notebook.values(push)
    if profile is not None and session.workers() is None:
        session.start(cards, profile)
    group, chosen = session.ready(cards, ranks)
    if values:
        group.push(values, chosen)
    rewritable = in_notebook()
    shown = (NotebookOutput if rewritable else TerminalOutput)(chosen)
    view = RanksView([group.last_state(rank) for rank in chosen], live=rewritable)
    run = CellRun(group, chosen, shown, view.update, grace)
    try:
        run.run(code, number)
    finally:
        group.remember(run.states)
        view.finish(run.states)
        if not rewritable and view.table is not None:
            display(view.table)
    return group.pull(list(output), chosen) if output else {}


def check_installed() -> None:
    """Raise HPUError if a package that workers need is missing."""
    if why := extras.absence("%%hpu_workers", "notebook", ("ipyparallel", "cloudpickle")):
        raise HPUError(why)


def _run(code: str, **options: Any) -> WorkersReport:
    return workers(code=code, **options)
