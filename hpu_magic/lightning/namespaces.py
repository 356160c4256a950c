"""The plug-in classes for each Lightning of the process.

``lightning.pytorch`` and ``pytorch_lightning`` are two copies of one library, and each has a
``Fabric``. Each copy accepts only plug-ins that are derived from its base classes, so there are
separate classes for each.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from hpu_magic.extras import installing
from hpu_magic.lightning import connector
from hpu_magic.lightning.choices import FABRIC, TRAINER, Choices, Stock
from hpu_magic.lightning.classes import FabricPlugins, Plugins, make, make_for_fabric
from hpu_magic.lightning.names import FABRICS, NAMESPACES, loaded_namespaces
from hpu_magic.lightning.profiler import patch_profilers
from hpu_magic.lightning.strategy import StrategyOnHPU


def default_namespace(names: tuple[str, ...] = NAMESPACES) -> str:
    """Return the namespace of the loaded or installed Lightning.

    Parameters
    ----------
    names : tuple of str
        The namespaces of ``Trainer`` or of ``Fabric``.

    Raises
    ------
    ModuleNotFoundError
        Lightning is not installed.
    """
    loaded = loaded_namespaces(names)
    if loaded:
        return loaded[0]
    for name in names:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            return name
    raise ModuleNotFoundError(
        f"Lightning is not installed: {installing('lightning')}.", name="lightning"
    )


def plugins(namespace: str) -> Plugins:
    """Return the plug-in classes for the ``Trainer`` of one Lightning, and register them.

    Raises
    ------
    UnsupportedLightningError
        This release of Lightning is not supported.
    """
    # The import may call this function through the hook; the cache makes the classes only once.
    return _plugins(importlib.import_module(namespace))


@functools.cache
def _plugins(pytorch: ModuleType) -> Plugins:
    namespace = pytorch.__name__
    classes = make(pytorch, namespace)
    chooser = importlib.import_module(f"{namespace}.trainer.connectors.accelerator_connector")
    registry = pytorch.strategies.StrategyRegistry
    refused = pytorch.utilities.exceptions.MisconfigurationException
    stock = _stock(pytorch, FABRICS[NAMESPACES.index(namespace)], registry, classes)
    connector.patch(
        pytorch, chooser._AcceleratorConnector, TRAINER, Choices(classes, stock, TRAINER, refused)
    )
    setup = importlib.import_module(f"{namespace}.trainer.setup")
    patch_profilers(setup, classes.HPUProfiler)
    classes.HPUAccelerator.register_accelerators(pytorch.accelerators.AcceleratorRegistry)
    _register_strategies(classes, registry)
    return classes


def fabric_plugins(namespace: str) -> FabricPlugins:
    """Return the plug-in classes for the ``Fabric`` of one Lightning, and register them.

    Raises
    ------
    UnsupportedLightningError
        This release of Lightning is not supported.
    """
    return _fabric_plugins(importlib.import_module(namespace))


@functools.cache
def _fabric_plugins(fabric: ModuleType) -> FabricPlugins:
    namespace = fabric.__name__
    classes = make_for_fabric(fabric, namespace)
    chooser = importlib.import_module(f"{namespace}.connector")
    registry = fabric.strategies.STRATEGY_REGISTRY
    stock = _stock(fabric, namespace, registry, classes)
    connector.patch(fabric, chooser._Connector, FABRIC, Choices(classes, stock, FABRIC, ValueError))
    classes.HPUAccelerator.register_accelerators(fabric.accelerators.ACCELERATOR_REGISTRY)
    _register_strategies(classes, registry)
    return classes


def _stock(
    lightning: ModuleType, fabric: str, registry: Any, classes: Plugins | FabricPlugins
) -> Stock:
    """Return Lightning's objects that the choices need."""
    environments = importlib.import_module(f"{fabric}.plugins.environments")
    strategies = lightning.strategies
    return Stock(
        registry=registry,
        counterparts={
            strategies.DDPStrategy: classes.HPUParallelStrategy,
            strategies.FSDPStrategy: classes.HPUFSDPStrategy,
            strategies.ModelParallelStrategy: classes.HPUModelParallelStrategy,
        },
        environment=environments.TorchElasticEnvironment,
        sync_batchnorm=getattr(lightning.plugins, "TorchSyncBatchNorm", None),
        info=importlib.import_module(f"{fabric}.utilities.rank_zero").rank_zero_info,
    )


def _register_strategies(classes: Plugins | FabricPlugins, registry: Any) -> None:
    for value in vars(classes).values():
        if isinstance(value, type) and issubclass(value, StrategyOnHPU):
            value.register_strategies(registry)
