"""``%%hpu_workers`` and ``%hpu_workers``."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.extras import absence
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.place import running_cell
from hpu_magic.magics.settings import Configured

if TYPE_CHECKING:
    from hpu_magic.parallel.report import WorkersReport

_ACTIONS = ("start", "restart", "stop")
_COUNT = argument(
    "-n",
    type=int,
    metavar="N",
    default=Configured("parallel_workers"),
    help="how many workers to start; by default one for each free card",
)


@magics_class
class ParallelMagics(CommandMagics):
    """Runs cells on several cards."""

    comma_separated = frozenset({"push", "pull"})

    def fits(self, argument: str, position: int, value: Any) -> bool:
        """Tell whether a variable may be sent: all but modules."""
        return argument in ("push", "pull") and not isinstance(value, ModuleType)

    @cell_magic
    @magic_arguments()
    @_COUNT
    @argument("--ranks", metavar="0,2", help="run the cell on these ranks only")
    @argument("--push", metavar="NAMES", help="send these variables to the ranks before")
    @argument("--pull", metavar="NAMES", help="bring these variables back after, as lists by rank")
    @argument(
        "--grace",
        type=float,
        metavar="SECONDS",
        default=Configured("parallel_grace"),
        help="how long the others may go on once a rank has failed",
    )
    def hpu_parallel(self, line: str, cell: str) -> None:
        """Run the cell on worker processes, one a card, all at once.

        The workers stay, with their variables, for the next such cell. Each has the environment
        that torchrun gives (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), so that
        init_process_group("hccl") and Trainer(accelerator="hpu", devices=N) work as in a script.
        What they print is grouped by rank; an interrupt reaches all of them. Variables come back
        from the cards as lists by rank, their tensors on the host. Examples::

            %%hpu_workers --cards 4
            trainer = Trainer(accelerator="hpu", devices=4, max_epochs=3)
            trainer.fit(model, data)

            %%hpu_workers --push model,lr --output losses
            losses = train(model, lr)
        """
        from IPython.display import display

        _check_installed()
        from hpu_magic.panels.front_end import in_notebook
        from hpu_magic.panels.ranks import RanksView
        from hpu_magic.parallel import session
        from hpu_magic.parallel.output import NotebookOutput, TerminalOutput
        from hpu_magic.parallel.run import CellRun

        options = self.parse(self.hpu_parallel, line, cell=True)
        self._check(options)
        push, pull, ranks = _names(options.push), _names(options.pull), _ranks(options.ranks)
        for name in [*push, *pull]:
            self.check_name(name)
        values = {name: self.find(name) for name in push}
        workers, chosen = self.call(session.ready, options.n, ranks)
        if values:
            self.call(workers.push, values, chosen)
        rewritable = in_notebook()
        output = (NotebookOutput if rewritable else TerminalOutput)(chosen)
        view = RanksView([workers.last_state(rank) for rank in chosen], live=rewritable)
        run = CellRun(workers, chosen, output, view.update, options.grace)
        # The comment takes the place of the command, so that tracebacks count the notebook's lines.
        code = cell if cell.lstrip().startswith("%%") else f"# %%hpu_workers\n{cell}"
        try:
            run.run(code, running_cell(self.shell))
        finally:
            workers.remember(run.states)
            view.finish(run.states)
            if not rewritable and view.table is not None:
                display(view.table)
        if pull:
            self.namespace.update(self.call(workers.pull, pull, chosen))

    @line_magic
    @magic_arguments()
    @_COUNT
    @argument(
        "--profile", metavar="NAME", help="with start: IPython profile that launches the workers"
    )
    @argument("action", nargs="?", choices=_ACTIONS, help="what to do; by default show them")
    def hpu_workers(self, line: str) -> WorkersReport:
        """Show, start, restart or stop the workers of %%hpu_workers.

        They are started here, one a card, or by an IPython profile, whose ipcluster_config.py
        may launch them through SLURM, MPI or SSH. Examples::

            %hpu_workers
            %hpu_workers on --cards 8
            %hpu_workers on --profile slurm
            %hpu_workers restart
            %hpu_workers off
        """
        _check_installed()
        from hpu_magic.parallel import session
        from hpu_magic.parallel.report import workers_report

        options = self.parse(self.hpu_workers, line)
        given = options.n != self.settings.parallel_workers or options.profile is not None
        if options.action != "start" and given:
            raise UsageError("-n and --profile belong to %hpu_workers on.")
        self._check(options)
        if options.action == "start":
            self.call(session.start, options.n, options.profile)
        elif options.action == "restart":
            self.call(session.restart)
        elif options.action == "stop":
            # Kept here, the workers would outlive an interrupt in its traceback.
            return workers_report(None, session.stop())
        return workers_report(session.workers())

    def close(self) -> None:
        """End the workers with the extension."""
        import sys

        if session := sys.modules.get("hpu_magic.parallel.session"):
            session.stop()

    @staticmethod
    def _check(options: Any) -> None:
        if options.n is not None and options.n < 1:
            raise UsageError(f"-n {options.n}: there must be at least 1 worker.")
        if getattr(options, "grace", 0.0) < 0:
            raise UsageError(f"--grace {options.grace:g}: a time is 0 seconds or more.")


def _check_installed() -> None:
    if why := absence("%%hpu_workers", "notebook", ("ipyparallel", "cloudpickle")):
        raise UsageError(why)


def _names(given: str | None) -> list[str]:
    return [name.strip() for name in (given or "").split(",") if name.strip()]


def _ranks(given: str | None) -> list[int] | None:
    if given is None:
        return None
    try:
        ranks = [int(rank) for rank in given.split(",")]
    except ValueError:
        raise UsageError(f"--ranks {given!r}: write numbers with commas between, as 0,2.") from None
    return ranks
