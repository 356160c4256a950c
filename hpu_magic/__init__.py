"""Gaudi in notebooks: magics, live panels and a simulator for machines without a card.

In a notebook, ``%load_ext hpu_magic``. In a script the same commands are functions::

    import hpu_magic

    hpu_magic.to(model)
    with hpu_magic.autocast():
        ...

Importing this package imports neither torch nor anything that draws. Where Python starts with the
simulator it is there before pytest is, which shall not warn of that: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

# Public name -> the module that defines it; loaded on first use.
_FUNCTIONS = {
    "to": "hpu_magic.commands.device",
    "mode": "hpu_magic.commands.device",
    "autocast": "hpu_magic.runtime.precision.autocast",
    "explain_autocast": "hpu_magic.runtime.precision.explain",
    "fp8_measure": "hpu_magic.runtime.precision.fp8.measure",
    "fp8_quantize": "hpu_magic.runtime.precision.fp8.quantize",
    "memory": "hpu_magic.commands.measuring",
    "time": "hpu_magic.commands.measuring",
    "status": "hpu_magic.commands.device",
    "fit": "hpu_magic.fits.fit",
    "watch": "hpu_magic.fits.watch",
    "panel": "hpu_magic.commands.measuring",
    "flags": "hpu_magic.commands.device",
    "release": "hpu_magic.commands.device",
    "ledger": "hpu_magic.runtime.measure.ledger",
    "profile": "hpu_magic.commands.measuring",
    "graph": "hpu_magic.commands.graphs",
    "replay": "hpu_magic.commands.graphs",
    "graphs": "hpu_magic.commands.graphs",
    "wrap": "hpu_magic.commands.graphs",
    "estimate": "hpu_magic.estimates.estimate",
    "estimate_generation": "hpu_magic.estimates.generation.estimate",
    "advise": "hpu_magic.advice.advise",
    "port": "hpu_magic.runtime.porting.port",
    "doctor": "hpu_magic.commands.device",
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
    """Run by ``%load_ext hpu_magic``."""
    from hpu_magic.magics import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Run by ``%unload_ext hpu_magic``."""
    from hpu_magic.magics import unload

    unload(shell)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from hpu_magic.server.application import HpuMagicServer

    return [{"module": "hpu_magic.server", "app": HpuMagicServer}]
