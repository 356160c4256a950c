"""The plug-in classes for each Lightning of the process.

``lightning.pytorch`` and ``pytorch_lightning`` are two copies of one library, and each has its
``Fabric``: each accepts only plug-ins derived from its own base classes, so the classes are made
once for each.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from hpu_magic.extras import installing
from hpu_magic.lightning import connector, profiler_choice
from hpu_magic.lightning.choices import FABRIC, TRAINER, Choices, Stock
from hpu_magic.lightning.classes import FabricPlugins, Plugins, make, make_for_fabric
from hpu_magic.lightning.names import FABRICS, NAMESPACES, loaded_namespaces
from hpu_magic.lightning.strategy import StrategyOnHPU


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
        f"Lightning is not installed: {installing('lightning')}.", name="lightning"
    )


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
    made = make(pytorch, namespace)
    chooser = importlib.import_module(f"{namespace}.trainer.connectors.accelerator_connector")
    registry = pytorch.strategies.StrategyRegistry
    refused = pytorch.utilities.exceptions.MisconfigurationException
    stock = _stock(pytorch, FABRICS[NAMESPACES.index(namespace)], registry, made)
    connector.patch(
        pytorch, chooser._AcceleratorConnector, TRAINER, Choices(made, stock, TRAINER, refused)
    )
    profiler_choice.patch(importlib.import_module(f"{namespace}.trainer.setup"), made.HPUProfiler)
    made.HPUAccelerator.register_accelerators(pytorch.accelerators.AcceleratorRegistry)
    _register_strategies(made, registry)
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
    made = make_for_fabric(fabric, namespace)
    chooser = importlib.import_module(f"{namespace}.connector")
    registry = fabric.strategies.STRATEGY_REGISTRY
    stock = _stock(fabric, namespace, registry, made)
    connector.patch(fabric, chooser._Connector, FABRIC, Choices(made, stock, FABRIC, ValueError))
    made.HPUAccelerator.register_accelerators(fabric.accelerators.ACCELERATOR_REGISTRY)
    _register_strategies(made, registry)
    return made


def _stock(
    lightning: ModuleType, fabric: str, registry: Any, made: Plugins | FabricPlugins
) -> Stock:
    """Return what the choices need of Lightning itself."""
    environments = importlib.import_module(f"{fabric}.plugins.environments")
    strategies = lightning.strategies
    return Stock(
        registry=registry,
        counterparts={
            strategies.DDPStrategy: made.HPUParallelStrategy,
            strategies.FSDPStrategy: made.HPUFSDPStrategy,
            strategies.ModelParallelStrategy: made.HPUModelParallelStrategy,
        },
        environment=environments.TorchElasticEnvironment,
        sync_batchnorm=getattr(lightning.plugins, "TorchSyncBatchNorm", None),
        info=importlib.import_module(f"{fabric}.utilities.rank_zero").rank_zero_info,
    )


def _register_strategies(made: Plugins | FabricPlugins, registry: Any) -> None:
    for one in vars(made).values():
        if isinstance(one, type) and issubclass(one, StrategyOnHPU):
            one.register_strategies(registry)
