"""The extension as Jupyter Server loads it."""

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
from hpu_magic.server.sampler import Sampler

_FIRST_SAMPLE = 5.0  # seconds after the start, when the server has no work of its own any more
_SCRAPE_LINGER = 90.0  # seconds; Prometheus asks once a minute at the most leisurely


class HpuMagicServer(ExtensionApp):
    """The machine's cards for JupyterLab and Prometheus."""

    name = "hpu_magic"
    description = "Shows Gaudi cards, who holds them, and frees those held by forgotten kernels."

    read_timeout = Float(
        5.0,
        min=0.1,
        config=True,
        help="Seconds that the driver may take to answer before its reader is started anew.",
    )

    show_arguments = Bool(
        False,
        config=True,
        help="Show the arguments of the processes that hold cards to everybody who may look at "
        "the cards here. Arguments may hold tokens and passwords.",
    )

    history_interval = Float(
        DEFAULT_INTERVAL,
        config=True,
        help="Seconds between the samples of the last 24 hours, which the overview of all cards "
        f"shows and which are taken whether somebody looks or not: {SHORTEST:g} to {LONGEST:g}, "
        "or 0 to take samples only while somebody looks.",
    )

    @validate("history_interval")
    def _valid_history_interval(self, proposal: Any) -> float:
        seconds: float = proposal["value"]
        if seconds != 0 and not SHORTEST <= seconds <= LONGEST:
            raise TraitError(
                f"HpuMagicServer.history_interval is {seconds:g}; give {SHORTEST:g} to {LONGEST:g} "
                "seconds, or 0 to take samples only while somebody looks."
            )
        return seconds

    def initialize_settings(self) -> None:
        """Keep questions to kernels out of their activity; say what an old front end lacks."""
        for old in requirements.too_old_a_front_end(requirements.installed_version):
            self.log.warning(old)
        leave_untracked(self.serverapp)

    def initialize_handlers(self) -> None:
        """Register routes and metrics."""
        server = self.serverapp
        assert server is not None
        kernels = Kernels(server.kernel_manager, server.session_manager)
        reader = ReaderProcess(self.read_timeout, arguments=self.show_arguments)
        past = LongHistory(self.history_interval or DEFAULT_INTERVAL)
        self.sampler = Sampler(reader, kernels.join, self.log, past, self.history_interval)
        self.handlers.extend(routes(self.sampler, kernels))
        self._collector = CardCollector(self.sampler.latest, self._keep_sampling)
        REGISTRY.register(self._collector)
        server.io_loop.call_later(_FIRST_SAMPLE, self.sampler.begin)

    async def stop_extension(self) -> None:
        """End the sampler and its child process."""
        REGISTRY.unregister(self._collector)
        await self.sampler.stop()

    def _keep_sampling(self) -> None:
        assert self.serverapp is not None
        self.serverapp.io_loop.add_callback(self.sampler.linger, _SCRAPE_LINGER)
