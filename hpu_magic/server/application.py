"""The extension application that Jupyter Server loads."""

from __future__ import annotations

from typing import Any

from jupyter_server.extension.application import ExtensionApp
from prometheus_client import REGISTRY
from traitlets import Bool, Float, TraitError, validate

from hpu_magic import requirements
from hpu_magic.server.activity import leave_untracked
from hpu_magic.server.handlers import routes
from hpu_magic.server.kernels import Kernels
from hpu_magic.server.long_history import DEFAULT_INTERVAL, LONGEST, SHORTEST, LongHistory
from hpu_magic.server.metrics import CardCollector
from hpu_magic.server.reader_process import ReaderProcess
from hpu_magic.server.sampler import CardSampler

_FIRST_SAMPLE = 5.0  # seconds after the server has started
_SCRAPE_LINGER = 90.0  # in seconds; Prometheus usually scrapes at least once per minute


class HpuMagicServer(ExtensionApp):
    """Makes the machine's cards available to JupyterLab and Prometheus."""

    name = "hpu_magic"
    description = "Shows Gaudi cards and their holders, and frees cards that idle kernels hold."

    read_timeout = Float(
        5.0,
        min=0.1,
        config=True,
        help="Seconds after which the child process that reads the cards is restarted if the "
        "driver hangs.",
    )

    show_arguments = Bool(
        False,
        config=True,
        help="Show the arguments of processes that hold cards to all users who can see the cards. "
        "Arguments may contain tokens and passwords.",
    )

    history_interval = Float(
        DEFAULT_INTERVAL,
        config=True,
        help="Seconds between the samples of the last 24 hours in the overview. These samples are "
        "also taken while no client is connected. The range is "
        f"{SHORTEST:g} to {LONGEST:g}; with 0, samples are only taken while a client is connected.",
    )

    @validate("history_interval")
    def _valid_history_interval(self, proposal: Any) -> float:
        seconds: float = proposal["value"]
        if seconds != 0 and not SHORTEST <= seconds <= LONGEST:
            raise TraitError(
                f"HpuMagicServer.history_interval is {seconds:g}; use {SHORTEST:g} to "
                f"{LONGEST:g} seconds, or to 0 to take samples only while a client is connected."
            )
        return seconds

    def initialize_settings(self) -> None:
        """Exclude the extension's messages from kernel activity; warn about outdated front ends."""
        for old in requirements.old_front_ends(requirements.installed_version):
            self.log.warning(old)
        leave_untracked(self.serverapp)

    def initialize_handlers(self) -> None:
        """Register the routes and the metrics."""
        server = self.serverapp
        assert server is not None
        kernels = Kernels(server.kernel_manager, server.session_manager)
        reader = ReaderProcess(self.read_timeout, arguments=self.show_arguments)
        past = LongHistory(self.history_interval or DEFAULT_INTERVAL)
        self.sampler = CardSampler(reader, kernels.join, self.log, past, self.history_interval)
        self.handlers.extend(routes(self.sampler, kernels))
        self._collector = CardCollector(self.sampler.latest, self._keep_sampling)
        REGISTRY.register(self._collector)
        server.io_loop.call_later(_FIRST_SAMPLE, self.sampler.begin)

    async def stop_extension(self) -> None:
        """Stop the sampler and its child process."""
        REGISTRY.unregister(self._collector)
        await self.sampler.stop()

    def _keep_sampling(self) -> None:
        assert self.serverapp is not None
        self.serverapp.io_loop.add_callback(self.sampler.linger, _SCRAPE_LINGER)
