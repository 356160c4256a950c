"""The plug-in classes for each Lightning of the process.

``lightning.pytorch`` and ``pytorch_lightning`` are two copies of one library, and each has its
``Fabric``: each accepts only plug-ins derived from its own base classes, so the classes are made
once for each.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hpu_magic.lightning import connector, profiler_choice
from hpu_magic.lightning.accelerator import HPUAcceleratorBase
from hpu_magic.lightning.checkpoint import HPUCheckpointIOBase
from hpu_magic.lightning.monitor import FitMonitorBase
from hpu_magic.lightning.names import NAMESPACES, loaded_namespaces
from hpu_magic.lightning.precision import FabricPrecisionBase, HPUPrecisionPluginBase
from hpu_magic.lightning.profiler import HPUProfilerBase
from hpu_magic.lightning.strategy import FabricSingleHPUStrategyBase, TrainerSingleHPUStrategyBase

__all__ = [
    "FabricPlugins",
    "Plugins",
    "default_namespace",
    "fabric_plugins",
    "namespace_of",
    "plugins",
]


@dataclass(frozen=True)
class Plugins:
    """The classes made for the ``Trainer`` of one Lightning."""

    namespace: str
    HPUAccelerator: type[Any]
    SingleHPUStrategy: type[Any]
    HPUPrecisionPlugin: type[Any]
    HPUCheckpointIO: type[Any]
    HPUProfiler: type[Any]
    FitMonitor: type[Any]


@dataclass(frozen=True)
class FabricPlugins:
    """The classes made for the ``Fabric`` of one Lightning."""

    namespace: str
    HPUAccelerator: type[Any]
    SingleHPUStrategy: type[Any]
    HPUPrecision: type[Any]
    HPUCheckpointIO: type[Any]


def default_namespace(names: tuple[str, ...] = NAMESPACES) -> str:
    """Return the Lightning in use here: the one that is loaded, else the one installed.

    Parameters
    ----------
    names : tuple of str
        The namespaces of ``Trainer``, or those of ``Fabric``.

    Raises
    ------
    ModuleNotFoundError
        When no Lightning is installed.
    """
    loaded = loaded_namespaces(names)
    if loaded:
        return loaded[0]
    for name in names:
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


def plugins(namespace: str) -> Plugins:
    """Return the plug-in classes for the ``Trainer`` of one Lightning, registered with it.

    Raises
    ------
    UnsupportedLightningError
        When this Lightning is not one of the known releases.
    """
    # The import may come back here by way of the hook: the classes are made once.
    return _plugins(importlib.import_module(namespace))


@functools.cache
def _plugins(pytorch: ModuleType) -> Plugins:
    namespace = pytorch.__name__
    made = _make(pytorch, namespace)
    chooser = importlib.import_module(f"{namespace}.trainer.connectors.accelerator_connector")
    connector.patch(
        pytorch,
        chooser._AcceleratorConnector,
        made,
        connector.TRAINER,
        pytorch.utilities.exceptions.MisconfigurationException,
    )
    profiler_choice.patch(importlib.import_module(f"{namespace}.trainer.setup"), made.HPUProfiler)
    made.HPUAccelerator.register_accelerators(pytorch.accelerators.AcceleratorRegistry)
    made.SingleHPUStrategy.register_strategies(pytorch.strategies.StrategyRegistry)
    return made


def fabric_plugins(namespace: str) -> FabricPlugins:
    """Return the plug-in classes for the ``Fabric`` of one Lightning, registered with it.

    Raises
    ------
    UnsupportedLightningError
        When this Lightning is not one of the known releases.
    """
    return _fabric_plugins(importlib.import_module(namespace))


@functools.cache
def _fabric_plugins(fabric: ModuleType) -> FabricPlugins:
    namespace = fabric.__name__
    made = _make_for_fabric(fabric, namespace)
    chooser = importlib.import_module(f"{namespace}.connector")
    connector.patch(fabric, chooser._Connector, made, connector.FABRIC, ValueError)
    made.HPUAccelerator.register_accelerators(fabric.accelerators.ACCELERATOR_REGISTRY)
    made.SingleHPUStrategy.register_strategies(fabric.strategies.STRATEGY_REGISTRY)
    return made


def _make(pytorch: ModuleType, namespace: str) -> Plugins:
    derive = functools.partial(_derive, "hpu_magic.lightning", namespace)
    checkpoint_io = derive(
        "HPUCheckpointIO", HPUCheckpointIOBase, pytorch.plugins.TorchCheckpointIO
    )
    return Plugins(
        namespace,
        HPUAccelerator=derive(
            "HPUAccelerator", HPUAcceleratorBase, pytorch.accelerators.Accelerator
        ),
        SingleHPUStrategy=derive(
            "SingleHPUStrategy",
            TrainerSingleHPUStrategyBase,
            pytorch.strategies.SingleDeviceStrategy,
            _checkpoint_io_class=checkpoint_io,
        ),
        HPUPrecisionPlugin=derive(
            "HPUPrecisionPlugin",
            HPUPrecisionPluginBase,
            pytorch.plugins.Precision,
            _mixed_precision_class=pytorch.plugins.MixedPrecision,
        ),
        HPUCheckpointIO=checkpoint_io,
        HPUProfiler=derive("HPUProfiler", HPUProfilerBase, pytorch.profilers.PyTorchProfiler),
        FitMonitor=derive("FitMonitor", FitMonitorBase, pytorch.Callback),
    )


def _make_for_fabric(fabric: ModuleType, namespace: str) -> FabricPlugins:
    derive = functools.partial(_derive, "hpu_magic.lightning.fabric", namespace)
    checkpoint_io = derive("HPUCheckpointIO", HPUCheckpointIOBase, fabric.plugins.TorchCheckpointIO)
    return FabricPlugins(
        namespace,
        HPUAccelerator=derive(
            "HPUAccelerator", HPUAcceleratorBase, fabric.accelerators.Accelerator
        ),
        SingleHPUStrategy=derive(
            "SingleHPUStrategy",
            FabricSingleHPUStrategyBase,
            fabric.strategies.SingleDeviceStrategy,
            _checkpoint_io_class=checkpoint_io,
        ),
        HPUPrecision=derive(
            "HPUPrecision",
            FabricPrecisionBase,
            fabric.plugins.Precision,
            _mixed_precision_class=fabric.plugins.MixedPrecision,
        ),
        HPUCheckpointIO=checkpoint_io,
    )


def _derive(
    module: str, namespace: str, name: str, behaviour: type, base: type, **members: Any
) -> type[Any]:
    members |= {"__module__": module, "__doc__": behaviour.__doc__, "namespace": namespace}
    return type(name, (behaviour, base), members)
