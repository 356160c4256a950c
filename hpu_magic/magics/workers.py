"""``%%hpu_workers`` and ``%hpu_workers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class

from hpu_magic.commands import cards as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of
from hpu_magic.magics.place import running_cell

if TYPE_CHECKING:
    from hpu_magic.parallel.workers_report import WorkersReport


@magics_class
class WorkersMagics(CommandMagics):
    """Run cells on multiple cards."""

    @line_cell_magic
    @options_of(commands.workers, leave_out=("code",))
    def hpu_workers(self, line: str, cell: str | None = None) -> WorkersReport | None:
        """Run a cell on workers (one per card), or list, start, restart or stop the workers.

        The workers keep their variables between cells. The workers have torchrun's environment
        variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), so that
        init_process_group("hccl") and Trainer(accelerator="hpu", devices=N) work as in a script.
        The workers' output is grouped by rank, and an interrupt is sent to all workers. Examples::

            %%hpu_workers --cards 4
            trainer = Trainer(accelerator="hpu", devices=4, max_epochs=3)
            trainer.fit(model, data)

            %%hpu_workers --push model,lr --output losses
            losses = train(model, lr)

            %hpu_workers
            %hpu_workers on --cards 8
            %hpu_workers on --profile slurm
            %hpu_workers restart
            %hpu_workers off
        """
        options = self.parse(self.hpu_workers, line, cell=cell is not None)
        self.call(commands.check_installed)
        if cell is None:
            name = options.output
            options.output = None
            return self.keep(name, self.call_declared(self.hpu_workers, options))
        if options.switch:
            raise UsageError(
                f"%%hpu_workers {options.switch} does not run a cell: type %hpu_workers "
                f"{options.switch} (one %)."
            )
        if options.cards is not None and options.cards < 1:
            raise UsageError(f"%%hpu_workers --cards must be at least 1, got {options.cards}.")
        declaration = self.hpu_workers.declaration  # type: ignore[attr-defined,union-attr]
        _, named = self.call(declaration.arguments, options, self.find)
        named["push"] = {name: self.find(name) for name in named["push"] or ()}
        # Replace the command with a comment, so that line numbers in tracebacks are correct.
        code = cell if cell.lstrip().startswith("%%") else f"# %%hpu_workers\n{cell}"
        outputs = self.call(commands.run_on_workers, code, running_cell(self.shell), **named)
        self.namespace.update(outputs)
        return None

    def close(self) -> None:
        """Stop the workers."""
        import sys

        if session := sys.modules.get("hpu_magic.parallel.session"):
            session.stop()
