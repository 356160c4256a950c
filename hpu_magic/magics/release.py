"""``%hpu_restart``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import device as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of

if TYPE_CHECKING:
    from hpu_magic.runtime.execution.release import ReleaseReport


@magics_class
class ReleaseMagics(CommandMagics):
    """Hands the card back."""

    @line_magic
    @options_of(commands.release)
    def hpu_restart(self, line: str) -> ReleaseReport:
        """Hand the card back so that another process can take it.

        A card is bound to its process, so this means a restart of the kernel: without --restart
        it is only explained. Examples::

            %hpu_restart
            %hpu_restart
        """
        return self.run(self.hpu_restart, line)
