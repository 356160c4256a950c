"""``%hpu``, ``%hpu_mode``, ``%hpu_restart`` and ``%hpu_doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import device as commands
from hpu_magic.magics import overview
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of

if TYPE_CHECKING:
    from hpu_magic.health import Diagnosis
    from hpu_magic.health.diagnosis import JsonRecord
    from hpu_magic.runtime.execution.kernel_restart import RestartReport
    from hpu_magic.runtime.execution.mode import ModeReport
    from hpu_magic.runtime.execution.status import CardReport, StatusReport


@magics_class
class StatusMagics(CommandMagics):
    """Show the state of the device and its machine."""

    @line_magic
    @options_of(commands.status, epilog=overview.text())
    def hpu(self, line: str) -> StatusReport | CardReport:
        """Show the device, the holders of all cards, and the list of commands.

        Does not acquire a card. Examples::

            %hpu
            %hpu 3
            state = %hpu
            state.mode.loaded
        """
        from hpu_magic.runtime.execution.status import StatusReport

        report = self.run(self.hpu, line)
        if isinstance(report, StatusReport):
            report.commands = overview.COMMANDS
        return report

    @line_magic
    @options_of(commands.mode)
    def hpu_mode(self, line: str) -> ModeReport:
        """Show the execution mode of this process, or choose another one.

        The mode is read only once, when torch is imported. If you choose a mode later, it is
        remembered for this notebook and takes effect when the kernel is restarted; it then
        overrides PT_HPU_LAZY_MODE. In a terminal, the mode is remembered for the current directory,
        and PT_HPU_LAZY_MODE overrides it. Examples::

            %hpu_mode
            %hpu_mode lazy
            %hpu_mode lazy --restart
            %hpu_mode --restart
        """
        return self.run(self.hpu_mode, line)

    @line_magic
    @options_of(commands.restart)
    def hpu_restart(self, line: str) -> RestartReport:
        """Restart the kernel to release its card; all variables are lost.

        A process holds its card until it ends. Examples::

            %hpu_restart
            %hpu_restart --mode lazy
        """
        return self.run(self.hpu_restart, line)

    @line_magic
    @options_of(commands.doctor)
    def hpu_doctor(self, line: str) -> Diagnosis | JsonRecord | None:
        """Check the installation, versions, driver, cards, flags, folders and Jupyter; show fixes.

        Failed checks are red, possible problems are amber, and checks that passed are green. The
        command does not acquire a card or import torch. Examples::

            %hpu_doctor
            %hpu_doctor --all
            %hpu_doctor --json
            %hpu_doctor --json -o findings
        """
        options = self.parse(self.hpu_doctor, line)
        report = self.keep(options.output, self.call_declared(self.hpu_doctor, options))
        # The JSON has hundreds of lines, and it is already stored in a variable.
        return None if options.json and options.output else report
