"""``%hpu`` and ``%hpu_mode``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import device as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of

if TYPE_CHECKING:
    from hpu_magic.runtime.execution.mode import ModeReport
    from hpu_magic.runtime.execution.status import StatusReport


@magics_class
class StatusMagics(CommandMagics):
    """What there is, and in which mode."""

    @line_magic
    @options_of(commands.status)
    def hpu(self, line: str) -> StatusReport:
        """Show the device: card, mode, memory, versions, and who holds which card.

        Takes no card. Examples::

            %hpu
            state = %hpu
            state.mode.loaded
        """
        return self.run(self.hpu, line)

    @line_magic
    @options_of(commands.mode)
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
        return self.run(self.hpu_mode, line)
