"""``%hpu`` and ``%hpu_mode``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.settings import RESTART

if TYPE_CHECKING:
    from hpu_magic.runtime.execution.mode import ModeReport
    from hpu_magic.runtime.execution.status import StatusReport


@magics_class
class StatusMagics(CommandMagics):
    """What there is, and in which mode."""

    @line_magic
    @magic_arguments()
    def hpu(self, line: str) -> StatusReport:
        """Show the device: card, mode, memory, versions, and who holds which card.

        Takes no card. Examples::

            %hpu
            state = %hpu
            state.mode.loaded
        """
        from hpu_magic.runtime.execution import status

        self.parse(self.hpu, line)
        return self.call(status.status, cells=self.cells())

    @line_magic
    @magic_arguments()
    @argument(
        "mode",
        nargs="?",
        choices=["eager", "lazy"],
        help="the mode to use; without it, the loaded and the requested mode are shown",
    )
    @RESTART
    def hpu_mode(self, line: str) -> ModeReport:
        """Show the execution mode of this process, or ask for another.

        The mode is read once, when torch is imported. Asked for later, it is remembered for
        this notebook and takes effect at the next start, whatever PT_HPU_LAZY_MODE the kernel
        inherits. In a terminal it is remembered for the folder, and PT_HPU_LAZY_MODE wins.
        Examples::

            %hpu_mode
            %hpu_mode lazy
            %hpu_mode lazy --restart
            %hpu_mode --restart
        """
        from hpu_magic.runtime.execution import mode

        options = self.parse(self.hpu_mode, line)
        return self.call(mode.mode, options.mode, restart_now=options.restart, cells=self.cells())
