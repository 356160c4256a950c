"""``%hpu_panel``."""

from __future__ import annotations

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.settings import Configured
from hpu_magic.runtime.measure.memory import MemoryReport


@magics_class
class PanelMagics(CommandMagics):
    """Draws the device's memory."""

    @line_magic
    @magic_arguments()
    @argument(
        "--interval",
        type=float,
        metavar="SECONDS",
        default=Configured("panel_interval"),
        help="seconds between two samples, 0.02 to 60",
    )
    @argument(
        "--history",
        type=float,
        metavar="SECONDS",
        default=Configured("panel_history"),
        help="seconds that the chart shows, 1 to 86400",
    )
    @argument("--stop", action="store_true", help="stop the panel and keep its last state")
    def hpu_panel(self, line: str) -> MemoryReport | None:
        """Show the device's memory live: in use, peak and limit.

        It goes on while later cells run, until it is stopped by its button, by --stop or by
        the next %hpu_panel, and then leaves a picture behind. Outside a notebook it shows the
        statistics once. Examples::

            %hpu_panel
            %hpu_panel --interval 0.1 --history 600
            %hpu_panel --stop
        """
        from hpu_magic.panels import panel

        options = self.parse(self.hpu_panel, line)
        if options.stop:
            if not panel.stop_panel():
                raise UsageError("No panel is live: %hpu_panel starts one.")
            return None
        shown = self.call(
            panel.panel,
            interval=options.interval,
            history=options.history,
            view=self.settings.panel,
        )
        return shown if isinstance(shown, MemoryReport) else None
