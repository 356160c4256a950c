"""Jupyter tools for Intel Gaudi: magics, live panels and a simulator for machines without a card.

In a notebook, run ``%load_ext hpu_magic``. In a script, the same commands are functions::

    import hpu_magic

    hpu_magic.to(model)
    with hpu_magic.autocast():
        ...

Importing this package imports neither torch nor a plotting library. If the simulator is enabled
when Python starts, the package is imported before pytest; the marker PYTEST_DONT_REWRITE keeps
pytest from warning about that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

CARD_TIME_PRICES = "hpu_magic.estimates.card_time:CardPrices"
"""The class that determines how long operators take on the simulated card's clock."""

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

# Public names and the modules that define them. Modules are imported lazily, on first access to one
# of their names.
_FUNCTIONS = {
    "HPUError": "hpu_magic.errors",
    "status": "hpu_magic.commands.device",
    "to": "hpu_magic.commands.device",
    "mode": "hpu_magic.commands.device",
    "flags": "hpu_magic.commands.device",
    "restart": "hpu_magic.commands.device",
    "doctor": "hpu_magic.commands.device",
    "autocast": "hpu_magic.commands.precision",
    "explain_autocast": "hpu_magic.commands.precision",
    "fp8_measure": "hpu_magic.commands.precision",
    "fp8_quantize": "hpu_magic.commands.precision",
    "fit": "hpu_magic.commands.training",
    "watch": "hpu_magic.fits.watch",
    "memory": "hpu_magic.commands.measuring",
    "memory_live": "hpu_magic.commands.measuring",
    "time": "hpu_magic.commands.measuring",
    "profile": "hpu_magic.commands.measuring",
    "ledger": "hpu_magic.commands.measuring",
    "capture": "hpu_magic.commands.graphs",
    "replay": "hpu_magic.commands.graphs",
    "graphs": "hpu_magic.commands.graphs",
    "wrap": "hpu_magic.commands.graphs",
    "workers": "hpu_magic.commands.cards",
    "serve": "hpu_magic.commands.serving",
    "estimate": "hpu_magic.commands.planning",
    "estimate_generation": "hpu_magic.commands.planning",
    "estimate_collective": "hpu_magic.commands.planning",
    "trace": "hpu_magic.commands.planning",
    "advise": "hpu_magic.commands.advising",
    "dry_run": "hpu_magic.commands.dry_runs",
    "from_cuda": "hpu_magic.commands.porting",
}

__all__ = ["__version__", *_FUNCTIONS]


def __getattr__(name: str) -> Any:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(import_module(_FUNCTIONS[name]), name)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted({*globals(), *_FUNCTIONS})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Load the extension; called by ``%load_ext hpu_magic``."""
    from hpu_magic.magics import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Unload the extension; called by ``%unload_ext hpu_magic``."""
    from hpu_magic.magics import unload

    unload(shell)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from hpu_magic.server.application import HpuMagicServer

    return [{"module": "hpu_magic.server", "app": HpuMagicServer}]
