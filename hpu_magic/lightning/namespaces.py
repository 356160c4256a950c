"""The plug-in classes for each Lightning of the process.

``lightning.pytorch`` and ``pytorch_lightning`` are two copies of one library:
each accepts only plug-ins derived from its own base classes, so the classes are
made once for each.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hpu_magic.lightning.accelerator import HPUAcceleratorBase
from hpu_magic.lightning.connector import patch
from hpu_magic.lightning.monitor import FitMonitorBase
from hpu_magic.lightning.names import NAMESPACES, loaded_namespaces
from hpu_magic.lightning.precision import HPUPrecisionPluginBase
from hpu_magic.lightning.strategy import HPUCheckpointIOBase, SingleHPUStrategyBase

__all__ = ["Plugins", "default_namespace", "namespace_of", "plugins"]


@dataclass(frozen=True)
class Plugins:
    """The classes made for one Lightning."""

    namespace: str
    HPUAccelerator: type[Any]
    SingleHPUStrategy: type[Any]
    HPUPrecisionPlugin: type[Any]
    HPUCheckpointIO: type[Any]
    FitMonitor: type[Any]


def default_namespace() -> str:
    """Return the Lightning in use here: the one that is loaded, else the one installed.

    Raises
    ------
    ModuleNotFoundError
        When no Lightning is installed.
    """
    loaded = loaded_namespaces()
    if loaded:
        return loaded[0]
    for name in NAMESPACES:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            return name
    raise ModuleNotFoundError(
        "Lightning is not installed: install it with `pip install lightning`.", name="lightning"
    )


def namespace_of(trainer: object) -> str | None:
    """Return the Lightning a Trainer comes from, or None when it is no Trainer."""
    for name in loaded_namespaces():
        trainer_class = getattr(importlib.import_module(name), "Trainer", None)
        if trainer_class is not None and isinstance(trainer, trainer_class):
            return name
    return None


@functools.cache
def plugins(namespace: str) -> Plugins:
    """Return the plug-in classes for one Lightning, registered with it.

    Raises
    ------
    UnsupportedLightningError
        When this Lightning is not one of the known releases.
    """
    pytorch = importlib.import_module(namespace)
    made = _make(pytorch, namespace)
    connector = importlib.import_module(f"{namespace}.trainer.connectors.accelerator_connector")
    patch(pytorch, connector._AcceleratorConnector, made)
    pytorch.accelerators.AcceleratorRegistry.register(
        "hpu", made.HPUAccelerator, description="Intel Gaudi", override=True
    )
    pytorch.strategies.StrategyRegistry.register(
        made.SingleHPUStrategy.strategy_name,
        made.SingleHPUStrategy,
        description="one process on one Intel Gaudi card",
        override=True,
    )
    return made


def _make(pytorch: ModuleType, namespace: str) -> Plugins:
    def init(
        self: Any,
        device: Any = "hpu",
        accelerator: Any = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
    ) -> None:
        pytorch.strategies.SingleDeviceStrategy.__init__(
            self,
            device=device,
            accelerator=accelerator,
            checkpoint_io=checkpoint_io or made.HPUCheckpointIO(),
            precision_plugin=precision_plugin,
        )

    made = Plugins(
        namespace,
        HPUAccelerator=_derive(
            "HPUAccelerator", HPUAcceleratorBase, pytorch.accelerators.Accelerator
        ),
        SingleHPUStrategy=_derive(
            "SingleHPUStrategy",
            SingleHPUStrategyBase,
            pytorch.strategies.SingleDeviceStrategy,
            __init__=init,
        ),
        HPUPrecisionPlugin=_derive(
            "HPUPrecisionPlugin", HPUPrecisionPluginBase, pytorch.plugins.Precision
        ),
        HPUCheckpointIO=_derive(
            "HPUCheckpointIO", HPUCheckpointIOBase, pytorch.plugins.TorchCheckpointIO
        ),
        FitMonitor=_derive("FitMonitor", FitMonitorBase, pytorch.Callback),
    )
    return made


def _derive(name: str, behaviour: type, base: type, **members: Any) -> type[Any]:
    members |= {"__module__": "hpu_magic.lightning", "__doc__": behaviour.__doc__}
    return type(name, (behaviour, base), members)
