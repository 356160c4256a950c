"""Intel Gaudi support for current releases of Lightning: ``Trainer(accelerator="hpu", devices=8)``.

Importing this package activates the ``hpu`` device, as ``%load_ext hpu_magic`` does, and registers
the accelerator and its strategies with every copy of Lightning, whether it is imported before or
after this package. The package itself imports neither Lightning nor torch. The classes for
``Fabric`` are in ``hpu_magic.lightning.fabric``.

The classes are derived from those of the imported copy of Lightning. If both ``lightning`` and
``pytorch_lightning`` are loaded, ``hpu_magic.lightning.namespaces.plugins("pytorch_lightning")``
returns the classes for the latter.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from typing import Any

from hpu_magic import backend
from hpu_magic.lightning import habana, hook
from hpu_magic.lightning.habana import as_lightning_habana

__all__ = [
    "HPUAccelerator",
    "HPUCheckpointIO",
    "HPUDDPStrategy",
    "HPUDataModule",
    "HPUDeepSpeedPrecisionPlugin",
    "HPUDeepSpeedStrategy",
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
    """Activate the device; if this fails, Lightning reports that ``hpu`` is not available."""
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
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hpu_magic.lightning.namespaces import default_namespace, plugins

    return getattr(plugins(default_namespace()), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
