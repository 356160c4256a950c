"""``%hpu_ledger``."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.place import place
from hpu_magic.magics.settings import HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.measure.ledger import ledger
    from hpu_magic.runtime.measure.ledger_report import LedgerReport, LedgerState


_SWITCHED = {
    True: "The ledger is on: under each cell that uses the device, a line says what it cost.",
    False: "The ledger is off.",
}


class _Kept(NamedTuple):
    thread: int
    context: ledger
    report: LedgerReport


@magics_class
class LedgerMagics(CommandMagics):
    """Says under each cell what it cost on the device."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        self._on = False
        self._last: LedgerReport | None = None
        # Of all cells that run, the innermost last; a kernel's subshells run cells in threads of
        # their own.
        self._kept: list[_Kept] = []
        # Also held while a ledger opens, so that none opens after the switch is off.
        self._lock = threading.Lock()

    @line_magic
    @magic_arguments()
    @argument(
        "switch",
        nargs="?",
        choices=["on", "off", "last"],
        help="on and off: for all later cells; last: the table of the last cell with a line; "
        "without it, the state is told",
    )
    def hpu_ledger(self, line: str) -> LedgerReport | LedgerState | None:
        """Say in one line under each cell what it cost on the device.

        The line names the graphs that were compiled, with the time and the shapes that caused
        them, the graph breaks of torch.compile, the operators that fell back to the CPU, the
        lines that made the host wait for a value, the number of graph replays, and the peak of
        the memory, whose statistic starts anew with each cell. Cells that do not use the device
        get no line. Examples::

            %hpu_ledger
            %hpu_ledger on
            %hpu_ledger last
            costs = %hpu_ledger last
            %hpu_ledger off
        """
        options = self.parse(self.hpu_ledger, line)
        if options.switch is None:
            from hpu_magic.runtime.measure.ledger_report import LedgerState

            return LedgerState(self._on, self._last)
        if options.switch == "last":
            if self._last is None:
                raise UsageError(
                    "No cell has used the device with the ledger on: type %hpu_ledger on, then "
                    "run one."
                )
            return self._last
        self._switch(options.switch == "on")
        print(_SWITCHED[self._on])
        return None

    def close(self) -> None:
        """Switch the ledger off when the extension is unloaded."""
        self._switch(False)

    def _switch(self, on: bool) -> None:
        if on == self._on:
            return
        change = self.shell.events.register if on else self.shell.events.unregister
        change("pre_run_cell", self._before)
        change("post_run_cell", self._after)
        with self._lock:
            self._on = on
            ended, self._kept = self._kept, []
        while ended:
            ended.pop().context.__exit__(None, None, None)

    def _before(self, info: object) -> None:
        from hpu_magic.runtime.measure.ledger import ledger

        one = ledger(namespace=self.shell.user_ns)
        with self._lock:
            if self._on:
                self._kept.append(_Kept(threading.get_ident(), one, one.__enter__()))

    def _after(self, result: Any) -> None:
        with self._lock:
            own = [kept for kept in self._kept if kept.thread == threading.get_ident()]
            # The cell that said "on" was not entered.
            if not own:
                return
            self._kept.remove(own[-1])
        _, one, report = own[-1]
        one.place = functools.partial(place, self.shell, result.execution_count)
        one.__exit__(None, None, None)
        if report.touched and len(own) == 1:
            from IPython.display import display

            from hpu_magic.runtime.measure.ledger_report import LedgerLine

            self._last = report
            display(LedgerLine(report))
