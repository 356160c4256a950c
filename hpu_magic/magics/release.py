"""``%hpu_release``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.settings import Configured

if TYPE_CHECKING:
    from hpu_magic.runtime.execution.release import ReleaseReport


@magics_class
class ReleaseMagics(CommandMagics):
    """Hands the card back."""

    @line_magic
    @magic_arguments()
    @argument(
        "--restart",
        action=argparse.BooleanOptionalAction,
        default=Configured("restart"),
        help="restart the kernel, which hands the card back; variables are lost",
    )
    def hpu_release(self, line: str) -> ReleaseReport:
        """Hand the card back so that another process can take it.

        A card is bound to its process, so this means a restart of the kernel: without --restart
        it is only explained. Examples::

            %hpu_release
            %hpu_release --restart
        """
        from hpu_magic.runtime.execution import release

        options = self.parse(self.hpu_release, line)
        return self.call(release.release, restart_now=options.restart)
