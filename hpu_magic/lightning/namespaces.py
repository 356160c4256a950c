"""Create and register plug-in classes for each copy of Lightning in the process.

``lightning.pytorch`` and ``pytorch_lightning`` are two copies of the same library, and each has a
``Fabric``. A copy accepts only plug-ins that are derived from its own base classes, so each copy
needs separate classes.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from hpu_magic.extras import installing
from hpu_magic.lightning import connector
from hpu_magic.lightning.choices import FABRIC, TRAINER, Choices, Stock
from hpu_magic.lightning.classes import Plugins, make
from hpu_magic.lightning.names import FABRICS, NAMESPACES, loaded_namespaces
from hpu_magic.lightning.profiler import patch_profilers
from hpu_magic.lightning.strategy import StrategyOnHPU


def default_namespace(names: tuple[str, ...] = NAMESPACES) -> str:
    """Return the first of `names` that is loaded or, if none is, the first that is installed.

    Raises
    ------
    ModuleNotFoundError
        Lightning is not installed.
    """
    if loaded := loaded_namespaces(names):
        return loaded[0]
    for name in names:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            return name
    raise ModuleNotFoundError(
        f"Lightning is not installed: {installing('lightning')}.", name="lightning"
    )


def plugins(namespace: str) -> Plugins:
    """Return the plug-in classes for one of `NAMESPACES` or `FABRICS`, and register them.

    Raises
    ------
    UnsupportedLightningError
        This release of Lightning is not supported.
    """
    # The import may call this function through the import hook; the cache ensures that the classes
    # are created only once.
    return _plugins(importlib.import_module(namespace))


@functools.cache
def _plugins(lightning: ModuleType) -> Plugins:
    namespace = lightning.__name__
    fabric = namespace in FABRICS
    classes = make(lightning, namespace, fabric=fabric)
    if fabric:
        registry = lightning.strategies.STRATEGY_REGISTRY
        accelerators = lightning.accelerators.ACCELERATOR_REGISTRY
        chooser = importlib.import_module(f"{namespace}.connector")._Connector
        stock = _stock(lightning, namespace, registry, classes)
        choices = Choices(classes, stock, FABRIC, ValueError)
    else:
        registry = lightning.strategies.StrategyRegistry
        accelerators = lightning.accelerators.AcceleratorRegistry
        connectors = f"{namespace}.trainer.connectors.accelerator_connector"
        chooser = importlib.import_module(connectors)._AcceleratorConnector
        stock = _stock(lightning, FABRICS[NAMESPACES.index(namespace)], registry, classes)
        refused = lightning.utilities.exceptions.MisconfigurationException
        choices = Choices(classes, stock, TRAINER, refused)
    connector.patch(lightning, chooser, choices)
    if not fabric:
        patch_profilers(importlib.import_module(f"{namespace}.trainer.setup"), classes.HPUProfiler)
    classes.HPUAccelerator.register_accelerators(accelerators)
    for value in vars(classes).values():
        if isinstance(value, type) and issubclass(value, StrategyOnHPU):
            value.register_strategies(registry)
    return classes


def _stock(lightning: ModuleType, fabric: str, registry: Any, classes: Plugins) -> Stock:
    """Return the Lightning objects that `Choices` needs."""
    environments = importlib.import_module(f"{fabric}.plugins.environments")
    strategies = lightning.strategies
    return Stock(
        registry=registry,
        counterparts={
            strategies.DDPStrategy: classes.HPUParallelStrategy,
            strategies.FSDPStrategy: classes.HPUFSDPStrategy,
            strategies.ModelParallelStrategy: classes.HPUModelParallelStrategy,
            strategies.DeepSpeedStrategy: classes.HPUDeepSpeedStrategy,
        },
        environment=environments.TorchElasticEnvironment,
        info=importlib.import_module(f"{fabric}.utilities.rank_zero").rank_zero_info,
    )
