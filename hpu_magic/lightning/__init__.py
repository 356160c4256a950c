"""Intel Gaudi for current Lightning: ``Trainer(accelerator="hpu", devices=8)``.

Importing this package activates the ``hpu`` device, like ``%load_ext hpu_magic``, and registers the
accelerator and its strategies with each Lightning that is loaded now or later. It does not import
Lightning or torch. The classes for ``Fabric`` are in ``hpu_magic.lightning.fabric``.

The classes are derived from the Lightning in use. If both distributions are loaded,
``hpu_magic.lightning.namespaces.plugins("pytorch_lightning")`` returns those of the other.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from hpu_magic import backend
from hpu_magic.lightning import habana, hook
from hpu_magic.lightning.habana import as_lightning_habana

if TYPE_CHECKING:
    HPUAccelerator: type[Any]
    HPUCheckpointIO: type[Any]
    HPUDDPStrategy: type[Any]
    HPUFSDPPrecision: type[Any]
    HPUFSDPStrategy: type[Any]
    HPUModelParallelStrategy: type[Any]
    HPUParallelStrategy: type[Any]
    HPUPrecisionPlugin: type[Any]
    HPUProfiler: type[Any]
    SingleHPUStrategy: type[Any]

__all__ = [
    "HPUAccelerator",
    "HPUCheckpointIO",
    "HPUDDPStrategy",
    "HPUFSDPPrecision",
    "HPUFSDPStrategy",
    "HPUModelParallelStrategy",
    "HPUParallelStrategy",
    "HPUPrecisionPlugin",
    "HPUProfiler",
    "SingleHPUStrategy",
    "as_lightning_habana",
]


def _activate_device() -> None:
    """Activate the device for a script that imports only this package.

    If that fails, Lightning reports that there is no ``hpu``.
    """
    if importlib.util.find_spec("habana_frameworks") is not None:
        return
    try:
        print(backend.activate(), file=sys.stderr)
    except (RuntimeError, ValueError) as refusal:
        warnings.warn(str(refusal), stacklevel=3)


_activate_device()
hook.install()
habana.requested(os.environ.get(habana.VARIABLE, ""))


def __getattr__(name: str) -> Any:
    if name not in __all__:
        for entry in habana.counterparts():
            if entry.name == name and entry.here is None:
                raise ImportError(habana.absence(entry))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hpu_magic.lightning.namespaces import default_namespace, plugins

    return getattr(plugins(default_namespace()), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
