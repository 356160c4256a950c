"""``%hpu_memory``, ``%%hpu_memory`` and ``%hpu_memory_live``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.magic import line_cell_magic, line_magic, magics_class

from hpu_magic.commands import measuring as commands
from hpu_magic.magics import cell as cells
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of
from hpu_magic.magics.settings import HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.measure.memory import MemoryReport, MemoryWatch


@magics_class
class MemoryMagics(CommandMagics):
    """The memory of the device."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        cells.offer("hpu_memory", self._watch)

    @line_cell_magic
    @options_of(commands.memory)
    def hpu_memory(self, line: str, cell: str | None = None) -> MemoryReport | None:
        """Show the memory in use and which variables hold it; for a cell, also show the peak.

        For models, the report lists the largest modules; identical layers are combined in one line.
        The cell magic also lists the variables to which the cell assigned new tensors. Examples::

            %hpu_memory
            %hpu_memory --all
            stats = %hpu_memory

            %%hpu_memory
            output = model(batch)
        """
        if cell is not None:
            cells.run(self.shell, "hpu_memory", line, cell)
            return None
        return self.run(self.hpu_memory, line)

    @line_magic
    @options_of(commands.memory_live)
    def hpu_memory_live(self, line: str) -> MemoryReport | None:
        """Show the device's memory in a live panel while you run other cells.

        To stop the panel, click its button, type %hpu_memory_live off, or start another panel; a
        picture then replaces it. Outside a notebook, the current statistics are printed once.
        Examples::

            %hpu_memory_live
            %hpu_memory_live --interval 0.1 --history 600
            %hpu_memory_live off
        """
        from hpu_magic.runtime.measure.memory import MemoryReport

        shown = self.run(self.hpu_memory_live, line)
        return shown if isinstance(shown, MemoryReport) else None

    def _watch(self, line: str) -> MemoryWatch:
        from hpu_magic.runtime.measure.memory import MemoryWatch

        options = self.parse(self.hpu_memory, line, cell=True)
        return MemoryWatch(
            self.namespace,
            self.shell.user_ns_hidden,
            keep=lambda report: self.keep(options.output, report),
            everything=options.all,
        )
