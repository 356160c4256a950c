"""``%%hpu_autocast`` for a cell, ``%hpu_autocast on|off`` for all later ones, ``explain``."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics import cell as cells
from hpu_magic.magics import kinds
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.settings import RESTART, Configured, HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.precision.autocast import AutocastReport, AutocastState, autocast
    from hpu_magic.runtime.precision.explain import AutocastExplanation


@magics_class
class AutocastMagics(CommandMagics):
    """Mixed precision."""

    comma_separated = frozenset({"lower", "fp32"})

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        self._standing: argparse.Namespace | None = None
        # Cells may run in several threads (a kernel's subshells), each with its own state.
        self._cells = threading.local()
        cells.offer("hpu_autocast", self._context)

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the operators that a list may name."""
        from hpu_magic.runtime.precision.operators import KNOWN

        return ["default", *KNOWN] if argument in ("lower", "fp32") else []

    @line_cell_magic
    @magic_arguments()
    @argument(
        "switch",
        nargs="?",
        choices=["on", "off", "explain"],
        help="on, off: for all later cells; explain: the types of a model (line form only)",
    )
    @argument("model", nargs="?", metavar="MODEL", help="explain: a module on the device")
    @argument(
        "sample",
        nargs="*",
        metavar="SAMPLE",
        help="explain: what the model takes: tensors, or a tuple or dict of them",
    )
    @argument(
        "--dtype",
        choices=["bf16", "fp16"],
        default=Configured("autocast_dtype"),
        help="the lower precision",
    )
    @argument("--off", action="store_true", help="run this cell without autocast")
    @argument(
        "--lower",
        default=Configured("autocast_lower"),
        metavar="LIST",
        help="operators in lower precision: comma-separated, a file with one a line, or default",
    )
    @argument(
        "--fp32",
        default=Configured("autocast_fp32"),
        metavar="LIST",
        help="operators in float32, given likewise",
    )
    @argument(
        "--level",
        choices=["O1", "O2"],
        default=Configured("autocast_level"),
        help="O1: the lists; O2: only matrix products and convolutions in lower precision",
    )
    @argument(
        "--verbose",
        action=argparse.BooleanOptionalAction,
        default=Configured("autocast_verbose"),
        help="show which operators computed in which type, and the lists in force",
    )
    @RESTART
    def hpu_autocast(
        self, line: str, cell: str | None = None
    ) -> AutocastState | AutocastExplanation | None:
        """Run a cell, or all later cells, under autocast.

        Operator lists are read once, when torch is imported: other lists are remembered for
        this notebook and take effect at the next start; in a terminal, the environment's lists
        win over remembered ones. explain runs the model once and shows,
        per module, the type each operation runs in, and why. Examples::

            %%hpu_autocast
            loss = model(batch).mean()

            %%hpu_autocast --dtype fp16 --all
            output = model(batch)

            %hpu_autocast on
            %hpu_autocast off
            %hpu_autocast on --lower linear,matmul --restart

            %hpu_explain_autocast model --inputs batch
        """
        if cell is not None:
            cells.run(self.shell, "hpu_autocast", line, cell)
            return None
        from hpu_magic.runtime.precision import operators
        from hpu_magic.runtime.precision.autocast import AutocastState

        options = self.parse(self.hpu_autocast, line)
        if options.switch == "explain":
            return self._explain(options)
        if options.model is not None:
            raise UsageError(f"%hpu_autocast {options.switch} takes no {options.model!r}.")
        if options.off and options.switch == "on":
            raise UsageError("%hpu_autocast on --off says both: leave out one of them.")
        if options.switch == "off" or options.off:
            self._switch_off()
        elif options.switch == "on":
            self._switch_on(options)
        elif (options.lower, options.fp32) != (
            self.settings.autocast_lower,
            self.settings.autocast_fp32,
        ):
            raise UsageError("%hpu_autocast needs on or off, or a cell: type %hpu_autocast on.")
        standing = self._standing
        return AutocastState(standing.dtype if standing else None, self.call(operators.in_force))

    def fits(self, argument: str, position: int, value: Any) -> bool:
        """Tell whether a variable is a model or what it may take."""
        fitting = {"model": kinds.module, "sample": kinds.of_tensors}
        return argument in fitting and fitting[argument](value)

    def follows(self, argument: str, words: Sequence[str]) -> bool:
        """Tell whether a model may be named: only to explain it."""
        return argument == "switch" or "explain" in words

    def close(self) -> None:
        """Leave autocast when the extension is unloaded."""
        self._switch_off()
        if self._after in self.shell.events.callbacks["post_run_cell"]:
            self.shell.events.unregister("post_run_cell", self._after)

    def _explain(self, options: argparse.Namespace) -> AutocastExplanation:
        from hpu_magic.runtime.precision.explain import explain_autocast

        if options.model is None or not options.sample:
            raise UsageError(
                "%hpu_autocast explain needs a model and what it takes: type "
                "%hpu_explain_autocast model --inputs batch."
            )
        sample: list[Any] = []
        named: dict[str, Any] = {}
        for name in options.sample:
            value = self.find(name)
            if isinstance(value, dict):
                named.update(value)
            else:
                sample.extend(value if isinstance(value, tuple) else [value])
        model = self.find(options.model)
        self._autocast(options)
        return self.call(explain_autocast, model, *sample, dtype=options.dtype, **named)

    def _context(self, line: str) -> autocast:
        options = self.parse(self.hpu_autocast, line, cell=True)
        if options.switch:
            raise UsageError(
                f"%%hpu_autocast {options.switch} on a cell has no meaning: type %hpu_autocast "
                f"{options.switch} (one %) for all later cells, or %%hpu_autocast off."
            )
        return self._autocast(options)

    def _autocast(self, options: argparse.Namespace) -> autocast:
        from hpu_magic.runtime.precision import operators
        from hpu_magic.runtime.precision.autocast import autocast
        from hpu_magic.runtime.start import restart

        try:
            return self.call(
                autocast,
                options.dtype,
                enabled=not options.off,
                lower=options.lower or None,
                fp32=options.fp32 or None,
                level=options.level,
                verbose=options.verbose,
            )
        except UsageError as error:
            if not (
                options.restart and isinstance(error.__context__, operators.RestartNeededError)
            ):
                raise
        self.call(restart.restart_kernel)
        raise UsageError("The kernel restarts now with these lists: run the cell again after it.")

    def _switch_on(self, options: argparse.Namespace) -> None:
        self._autocast(options)  # refuses what is wrong now, not at the next cell
        self._switch_off()
        self._standing = options
        self.shell.events.register("pre_run_cell", self._before)
        self.shell.events.register("post_run_cell", self._after)

    def _switch_off(self) -> None:
        if self._standing is not None:
            # Cells in other threads are still to be left: only their own thread can do it.
            self.shell.events.unregister("pre_run_cell", self._before)
            self._standing = None
        while self._entered:
            self._entered.pop().__exit__(None, None, None)

    @property
    def _entered(self) -> list[autocast]:
        """The contexts of the cells that run in this thread, the innermost last."""
        if not hasattr(self._cells, "entered"):
            self._cells.entered = []
        return self._cells.entered

    def _before(self, info: object) -> None:
        assert self._standing is not None
        context = self._autocast(self._standing)
        context.__enter__()
        self._entered.append(context)

    def _after(self, result: object) -> None:
        # The cell that said "on" was not entered; a cell run by a cell is left before it.
        if self._entered:
            context = self._entered.pop()
            context.__exit__(None, None, None)
            self._show(context.summary())

    @staticmethod
    def _show(report: AutocastReport | None) -> None:
        if report is not None:
            from IPython.display import display

            display(report)
