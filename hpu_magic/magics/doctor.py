"""``%hpu_doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import device as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of

if TYPE_CHECKING:
    from hpu_magic.health import Diagnosis
    from hpu_magic.health.diagnosis import Record


@magics_class
class DoctorMagics(CommandMagics):
    """Checks the machine."""

    @line_magic
    @options_of(commands.doctor)
    def hpu_doctor(self, line: str) -> Diagnosis | Record:
        """Check installation, versions, driver, cards, flags, folders and Jupyter.

        Red is broken, amber is slow or may break, green is fine. Takes no card and loads no torch.
        Examples::

            %hpu_doctor
            %hpu_doctor --all
            %hpu_doctor --json
            findings = %hpu_doctor --json
        """
        return self.run(self.hpu_doctor, line)
