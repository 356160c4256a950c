"""The extension as Jupyter Server loads it."""

from __future__ import annotations

from jupyter_server.extension.application import ExtensionApp
from prometheus_client import REGISTRY
from traitlets import Bool, Float

from .activity import leave_untracked
from .handlers import routes
from .kernels import Kernels
from .metrics import CardCollector
from .reader_process import ReaderProcess
from .sampler import Sampler

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

    def initialize_settings(self) -> None:
        """Keep questions to kernels out of their activity."""
        leave_untracked(self.serverapp)

    def initialize_handlers(self) -> None:
        """Register routes and metrics."""
        server = self.serverapp
        assert server is not None
        kernels = Kernels(server.kernel_manager, server.session_manager)
        reader = ReaderProcess(self.read_timeout, arguments=self.show_arguments)
        self.sampler = Sampler(reader, kernels.join, self.log)
        self.handlers.extend(routes(self.sampler, kernels))
        self._collector = CardCollector(self.sampler.latest, self._keep_sampling)
        REGISTRY.register(self._collector)

    async def stop_extension(self) -> None:
        """End the sampler and its child process."""
        REGISTRY.unregister(self._collector)
        await self.sampler.stop()

    def _keep_sampling(self) -> None:
        assert self.serverapp is not None
        self.serverapp.io_loop.add_callback(self.sampler.linger, _SCRAPE_LINGER)
