"""Intel Gaudi for current Lightning: ``Trainer(accelerator="hpu", devices=8)``.

Importing this package brings the ``hpu`` device in, as ``%load_ext hpu_magic``
does, and registers the accelerator and its strategies with every Lightning that is
loaded, or will be; it imports neither Lightning nor torch. What ``Fabric`` takes is in
``hpu_magic.lightning.fabric``.
The classes are those of the Lightning in use; with both distributions loaded,
``hpu_magic.lightning.namespaces.plugins("pytorch_lightning")`` gives the
other's.
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


def _bring_device_in() -> None:
    """Activate the device for a script that imports this package and nothing else of ours.

    Where it cannot be had, Lightning itself will say that there is no ``hpu``.
    """
    if importlib.util.find_spec("habana_frameworks") is not None:
        return
    try:
        print(backend.activate(), file=sys.stderr)
    except (RuntimeError, ValueError) as refusal:
        warnings.warn(str(refusal), stacklevel=3)


_bring_device_in()
hook.install()
habana.requested(os.environ.get(habana.VARIABLE, ""))


def __getattr__(name: str) -> Any:
    if name not in __all__:
        for one in habana.counterparts():
            if one.name == name and one.here is None:
                raise ImportError(habana.absence(one))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hpu_magic.lightning.namespaces import default_namespace, plugins

    return getattr(plugins(default_namespace()), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
