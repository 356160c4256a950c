"""``%hpu_memory`` and ``%%hpu_memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.magic import line_cell_magic, magics_class

from hpu_magic.commands import measuring as commands
from hpu_magic.magics import cell as cells
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of
from hpu_magic.magics.settings import HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.measure.memory import MemoryReport, MemoryWatch


@magics_class
class MemoryMagics(CommandMagics):
    """What the device's memory is used for."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        cells.offer("hpu_memory", self._watch)

    @line_cell_magic
    @options_of(commands.memory, output=True)
    def hpu_memory(self, line: str, cell: str | None = None) -> MemoryReport | None:
        """Show the memory statistics and who holds it; for a cell, what it used and left behind.

        Below the statistics stand the variables that hold memory; of models the largest modules,
        where layers that are alike are told as one. As a cell magic it shows the memory in use
        before and after the cell, the peak in between, and the variables that hold new tensors.
        Examples::

            %hpu_memory
            stats = %hpu_memory

            %%hpu_memory
            output = model(batch)
        """
        if cell is not None:
            cells.run(self.shell, "hpu_memory", line, cell)
            return None
        return self.run(self.hpu_memory, line)

    def _watch(self, line: str) -> MemoryWatch:
        from hpu_magic.runtime.measure.memory import MemoryWatch

        options = self.parse(self.hpu_memory, line, cell=True)
        self.check_name(options.output)
        return MemoryWatch(
            self.namespace,
            self.shell.user_ns_hidden,
            keep=lambda report: self.keep(options.output, report),
        )
