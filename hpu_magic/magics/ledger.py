"""``%hpu_ledger``."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import measuring as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of, split_list
from hpu_magic.magics.place import place
from hpu_magic.magics.settings import HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.measure.ledger import Ledger
    from hpu_magic.runtime.measure.ledger_report import LedgerReport, LedgerState


_SWITCHED = {
    True: "The ledger is on: cells that use the device show a line with their overhead.",
    False: "The ledger is off.",
}


class _Kept(NamedTuple):
    thread: int
    context: Ledger
    report: LedgerReport


@magics_class
class LedgerMagics(CommandMagics):
    """Show the device overhead of each cell in a line below it."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        self._on = False
        self._show: tuple[str, ...] = ()
        self._last: LedgerReport | None = None
        # One entry per running cell; the subshells of a kernel run cells in other threads.
        self._kept: list[_Kept] = []
        # The lock is also held while a ledger is opened, so that no ledger is opened after the
        # switch is turned off.
        self._lock = threading.Lock()

    @line_magic
    @options_of(commands.ledger)
    def hpu_ledger(self, line: str) -> LedgerReport | LedgerState | None:
        """Report the device overhead of each cell in a line below the cell.

        The line lists compiled graphs with their time and shapes, graph breaks of torch.compile,
        CPU fallbacks, lines of code at which the host waits for a value, graph replays, and the
        peak memory. Cells that do not use the device do not have such a line. Examples::

            %hpu_ledger on
            %hpu_ledger on --show graphs,peak
            %hpu_ledger
            %hpu_ledger last
            costs = %hpu_ledger last
            %hpu_ledger off
        """
        options = self.parse(self.hpu_ledger, line)
        from hpu_magic.runtime.measure.ledger_report import LedgerState, checked_parts

        parts = self.call(checked_parts, split_list(options.show or ""))
        if options.switch is None and not parts:
            return self.keep(options.output, LedgerState(self._on, self._last))
        if options.switch == "last":
            if self._last is None:
                raise UsageError(
                    "No cell has used the device while the ledger was on: type %hpu_ledger on, and "
                    "then run a cell."
                )
            return self.keep(options.output, self._last)
        self._show = parts
        self._switch(options.switch != "off")
        print(_SWITCHED[self._on])
        return None

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the parts that a line of the ledger can show."""
        from hpu_magic.runtime.measure.ledger_report import PARTS

        return list(PARTS) if argument == "show" else []

    def close(self) -> None:
        """Turn the ledger off when the extension is unloaded."""
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
        from hpu_magic.runtime.measure.ledger import Ledger

        ledger = Ledger(namespace=self.shell.user_ns, show=self._show)
        with self._lock:
            if self._on:
                self._kept.append(_Kept(threading.get_ident(), ledger, ledger.__enter__()))

    def _after(self, result: Any) -> None:
        with self._lock:
            own = [kept for kept in self._kept if kept.thread == threading.get_ident()]
            # The cell that turned the ledger on does not have a ledger.
            if not own:
                return
            self._kept.remove(own[-1])
        _, ledger, report = own[-1]
        ledger.place = functools.partial(place, self.shell, result.execution_count)
        ledger.__exit__(None, None, None)
        if report.touched and len(own) == 1:
            from IPython.display import display

            from hpu_magic.runtime.measure.ledger_report import LedgerLine

            self._last = report
            display(LedgerLine(report))
