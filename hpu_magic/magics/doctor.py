"""``%hpu_doctor``."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.settings import Configured

if TYPE_CHECKING:
    from hpu_magic.doctor import Diagnosis


@magics_class
class DoctorMagics(CommandMagics):
    """What is wrong with the machine, and the mend."""

    @line_magic
    @magic_arguments()
    @argument(
        "--all",
        action=argparse.BooleanOptionalAction,
        default=Configured("doctor_all"),
        help="show what is green one by one too",
    )
    @argument(
        "--json",
        action="store_true",
        help="print all findings as JSON to show to others: without names, folders and addresses",
    )
    def hpu_doctor(self, line: str) -> Diagnosis | None:
        """Look for what is wrong: installation, versions, driver, cards, flags, folders, Jupyter.

        Red fails, amber hurts or may, green is well. Takes no card and loads no torch. Examples::

            %hpu_doctor
            %hpu_doctor --all
            %hpu_doctor --json
        """
        from hpu_magic.doctor import doctor

        options = self.parse(self.hpu_doctor, line)
        diagnosis = self.call(doctor, everything=options.all)
        if not options.json:
            return diagnosis
        print(json.dumps(diagnosis.as_record(), indent=2))
        return None
