"""``%%hpu_autocast``, ``%hpu_autocast on|off`` and ``%hpu_explain_autocast``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, line_magic, magics_class

from hpu_magic.commands import precision as commands
from hpu_magic.magics import cell as cells
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of
from hpu_magic.magics.settings import HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.precision.autocast import Autocast, AutocastReport, AutocastState
    from hpu_magic.runtime.precision.explain import AutocastExplanation

_LISTS = ("lower", "fp32", "level")


@magics_class
class AutocastMagics(CommandMagics):
    """Mixed precision."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        self._switched_on: Any = None
        # The subshells of a kernel run cells in several threads, and each thread has its own
        # autocast state.
        self._cells = threading.local()
        cells.offer("hpu_autocast", self._context)

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the names that an operator list may contain."""
        from hpu_magic.runtime.precision.operators import KNOWN

        return ["default", *KNOWN] if argument in ("lower", "fp32") else []

    @line_cell_magic
    @options_of(commands.autocast)
    def hpu_autocast(self, line: str, cell: str | None = None) -> AutocastState | None:
        """Run a cell, or all later cells, in mixed precision.

        Operator lists are read only once, when torch is imported. If you specify different lists
        later, they are remembered for this notebook and take effect when the kernel is restarted.
        In a terminal, lists in the environment override the remembered ones. %hpu_explain_autocast
        shows the dtype of each operation in a model. Examples::

            %%hpu_autocast
            loss = model(batch).mean()

            %%hpu_autocast --dtype fp16 --all
            output = model(batch)

            %%hpu_autocast off
            loss = loss_function(output.float(), target)

            %hpu_autocast on
            %hpu_autocast off
            %hpu_autocast on --lower linear,matmul --restart
        """
        if cell is not None:
            cells.run(self.shell, "hpu_autocast", line, cell)
            return None
        from hpu_magic.runtime.precision import operators
        from hpu_magic.runtime.precision.autocast import AutocastState

        options = self.parse(self.hpu_autocast, line)
        if options.switch == "off":
            self._switch_off()
        elif options.switch == "on":
            self._switch_on(options)
        elif any(getattr(options, name) is not None for name in _LISTS):
            raise UsageError(f"%hpu_autocast needs on, off or a cell: type %hpu_autocast on {line}")
        on = self._switched_on
        state = AutocastState(on.dtype if on else None, self.call(operators.in_force))
        return self.keep(options.output, state)

    @line_magic
    @options_of(commands.explain_autocast)
    def hpu_explain_autocast(self, line: str) -> AutocastExplanation:
        """Show which dtype each operation in a model has under autocast, and why.

        The model runs once, without gradients. Examples::

            %hpu_explain_autocast model --inputs batch
            %hpu_explain_autocast model --inputs x,mask --dtype fp16
        """
        return self.run(self.hpu_explain_autocast, line)

    def close(self) -> None:
        """Turn autocast off when the extension is unloaded."""
        self._switch_off()
        if self._after in self.shell.events.callbacks["post_run_cell"]:
            self.shell.events.unregister("post_run_cell", self._after)

    def _context(self, line: str) -> Any:
        options = self.parse(self.hpu_autocast, line, cell=True)
        context = self._autocast(options)
        return _Kept(context, lambda report: self.keep(options.output, report))

    def _autocast(self, options: Any) -> Autocast:
        if options.switch == "on":  # the function rejects this value
            options.switch = None
        context: Autocast = self.call_declared(self.hpu_autocast, options)
        return context

    def _switch_on(self, options: Any) -> None:
        self._autocast(options)  # raise errors now instead of in the next cell
        self._switch_off()
        self._switched_on = options
        self.shell.events.register("pre_run_cell", self._before)
        self.shell.events.register("post_run_cell", self._after)

    def _switch_off(self) -> None:
        if self._switched_on is not None:
            # Only the thread of a cell can exit its context, so `_after` remains registered.
            self.shell.events.unregister("pre_run_cell", self._before)
            self._switched_on = None
        while self._entered:
            self._entered.pop().__exit__(None, None, None)

    @property
    def _entered(self) -> list[Autocast]:
        """The contexts of the cells that are running in this thread; the innermost one is last."""
        if not hasattr(self._cells, "entered"):
            self._cells.entered = []
        return self._cells.entered

    def _before(self, info: object) -> None:
        context = self._autocast(self._switched_on)
        context.__enter__()
        self._entered.append(context)

    def _after(self, result: object) -> None:
        # The cell that turned autocast on does not have a context. Inner cells exit first.
        if self._entered:
            context = self._entered.pop()
            context.__exit__(None, None, None)
            report = context.summary()
            if report is not None:
                from IPython.display import display

                display(report)


class _Kept:
    """A cell's context, which assigns the report to a variable."""

    def __init__(self, context: Autocast, keep: Any) -> None:
        self._context, self._keep = context, keep

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def summary(self) -> AutocastReport | None:
        """Return the report to show below the cell."""
        report = self._context.summary()
        return None if report is None else self._keep(report)
