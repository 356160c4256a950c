"""``%%hpu_profile``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from IPython.core.magic import cell_magic, magics_class

from hpu_magic.commands import measuring as commands
from hpu_magic.magics import cell as cells
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of
from hpu_magic.magics.settings import HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.measure.profiling import profile


@magics_class
class ProfileMagics(CommandMagics):
    """Profiles cells on the device."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        cells.offer("hpu_profile", self._profile)

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the directories that may complete `word`."""
        if argument != "dir":
            return []
        place, slash, _ = word.rpartition("/")
        try:
            with os.scandir(os.path.expanduser(place + slash) or ".") as entries:
                names = [one.name for one in entries if one.is_dir() and one.name[0] != "."]
        except OSError:
            return []
        return [f"{place}{slash}{name}/" for name in names if not re.search(r"[\s\'\"]", name)]

    @cell_magic
    @options_of(commands.profile)
    def hpu_profile(self, line: str, cell: str) -> None:
        """Profile a cell; show a table of the most expensive operators, and write a trace file.

        The trace can be opened in TensorBoard and at ui.perfetto.dev. Examples::

            %%hpu_profile
            loss = step(batch)

            %%hpu_profile --dir traces -o report
            loss = step(batch)
        """
        cells.run(self.shell, "hpu_profile", line, cell)

    def _profile(self, line: str) -> profile:
        from hpu_magic.runtime.measure.profiling import profile

        options = self.parse(self.hpu_profile, line, cell=True)
        return profile(
            options.dir if options.trace else None,
            keep=lambda report: self.keep(options.output, report),
        )
