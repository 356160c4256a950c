"""``%hpu_memory_live``."""

from __future__ import annotations

from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import measuring as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of
from hpu_magic.runtime.measure.memory import MemoryReport


@magics_class
class PanelMagics(CommandMagics):
    """Draws the device's memory."""

    @line_magic
    @options_of(commands.panel)
    def hpu_memory_live(self, line: str) -> MemoryReport | None:
        """Show the device's memory live: in use, peak and limit.

        The panel goes on while later cells run, until its button, --stop or the next %hpu_memory_live
        stops it, and leaves a picture. Outside a notebook the statistics are shown once. Examples::

            %hpu_memory_live
            %hpu_memory_live --interval 0.1 --history 600
            %hpu_memory_live off
        """
        shown = self.run(self.hpu_memory_live, line)
        return shown if isinstance(shown, MemoryReport) else None
