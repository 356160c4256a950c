"""The plug-in classes for one Lightning: each behaviour joined to that copy's own base class."""

from __future__ import annotations

import copyreg
import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hpu_magic.lightning.accelerator import HPUAcceleratorBase
from hpu_magic.lightning.checkpoint import HPUCheckpointIOBase
from hpu_magic.lightning.launch import ScriptLauncherBase, TrainerScriptLauncherBase
from hpu_magic.lightning.monitor import FitMonitorBase
from hpu_magic.lightning.parallel import (
    FabricParallelHPUStrategyBase,
    HPUDDPStrategyBase,
    TrainerParallelHPUStrategyBase,
)
from hpu_magic.lightning.precision import FabricPrecisionBase, HPUPrecisionPluginBase
from hpu_magic.lightning.profiler import HPUProfilerBase
from hpu_magic.lightning.sharded import (
    FabricFSDPBase,
    FabricModelParallelBase,
    HPUFSDPPrecisionBase,
    TrainerFSDPBase,
    TrainerModelParallelBase,
)
from hpu_magic.lightning.strategy import SingleHPUStrategyBase, TrainerSingleHPUStrategyBase


@dataclass(frozen=True)
class Plugins:
    """The classes made for the ``Trainer`` of one Lightning."""

    namespace: str
    HPUAccelerator: type[Any]
    SingleHPUStrategy: type[Any]
    HPUParallelStrategy: type[Any]
    HPUDDPStrategy: type[Any]
    HPUFSDPStrategy: type[Any]
    HPUModelParallelStrategy: type[Any]
    HPUPrecisionPlugin: type[Any]
    HPUFSDPPrecision: type[Any]
    HPUCheckpointIO: type[Any]
    HPUProfiler: type[Any]
    FitMonitor: type[Any]


@dataclass(frozen=True)
class FabricPlugins:
    """The classes made for the ``Fabric`` of one Lightning."""

    namespace: str
    HPUAccelerator: type[Any]
    SingleHPUStrategy: type[Any]
    HPUParallelStrategy: type[Any]
    HPUDDPStrategy: type[Any]
    HPUFSDPStrategy: type[Any]
    HPUModelParallelStrategy: type[Any]
    HPUPrecision: type[Any]
    HPUFSDPPrecision: type[Any]
    HPUCheckpointIO: type[Any]


def make(pytorch: ModuleType, namespace: str) -> Plugins:
    """Return the classes for the ``Trainer`` of ``lightning.pytorch`` or ``pytorch_lightning``."""
    derive = functools.partial(_derive, "hpu_magic.lightning", namespace)
    plugins, strategies = pytorch.plugins, pytorch.strategies
    checkpoint_io = derive("HPUCheckpointIO", HPUCheckpointIOBase, plugins.TorchCheckpointIO)
    single = derive(
        "SingleHPUStrategy",
        TrainerSingleHPUStrategyBase,
        strategies.SingleDeviceStrategy,
        _checkpoint_io_class=checkpoint_io,
    )
    several = _for_several_cards(
        derive,
        strategies,
        plugins,
        (TrainerParallelHPUStrategyBase, TrainerFSDPBase, TrainerModelParallelBase),
        _checkpoint_io_class=checkpoint_io,
        _script_launcher_class=_launcher(derive, namespace, TrainerScriptLauncherBase),
        _connect=_connect(namespace),
    )
    return Plugins(
        namespace,
        HPUAccelerator=derive(
            "HPUAccelerator", HPUAcceleratorBase, pytorch.accelerators.Accelerator
        ),
        SingleHPUStrategy=single,
        **several,
        HPUPrecisionPlugin=derive(
            "HPUPrecisionPlugin",
            HPUPrecisionPluginBase,
            plugins.Precision,
            _mixed_precision_class=plugins.MixedPrecision,
        ),
        HPUCheckpointIO=checkpoint_io,
        HPUProfiler=derive("HPUProfiler", HPUProfilerBase, pytorch.profilers.PyTorchProfiler),
        FitMonitor=derive("FitMonitor", FitMonitorBase, pytorch.Callback),
    )


def make_for_fabric(fabric: ModuleType, namespace: str) -> FabricPlugins:
    """Return the classes for the ``Fabric`` of ``lightning.fabric`` or ``lightning_fabric``."""
    derive = functools.partial(_derive, "hpu_magic.lightning.fabric", namespace)
    plugins, strategies = fabric.plugins, fabric.strategies
    checkpoint_io = derive("HPUCheckpointIO", HPUCheckpointIOBase, plugins.TorchCheckpointIO)
    several = _for_several_cards(
        derive,
        strategies,
        plugins,
        (FabricParallelHPUStrategyBase, FabricFSDPBase, FabricModelParallelBase),
        _checkpoint_io_class=checkpoint_io,
        _script_launcher_class=_launcher(derive, namespace, ScriptLauncherBase),
        _connect=_connect(namespace),
    )
    return FabricPlugins(
        namespace,
        HPUAccelerator=derive(
            "HPUAccelerator", HPUAcceleratorBase, fabric.accelerators.Accelerator
        ),
        SingleHPUStrategy=derive(
            "SingleHPUStrategy",
            SingleHPUStrategyBase,
            strategies.SingleDeviceStrategy,
            _checkpoint_io_class=checkpoint_io,
        ),
        **several,
        HPUPrecision=derive(
            "HPUPrecision",
            FabricPrecisionBase,
            plugins.Precision,
            _mixed_precision_class=plugins.MixedPrecision,
        ),
        HPUCheckpointIO=checkpoint_io,
    )


def _for_several_cards(
    derive: Callable[..., type[Any]],
    strategies: ModuleType,
    plugins: ModuleType,
    behaviours: tuple[type, type, type],
    **members: Any,
) -> dict[str, type[Any]]:
    """Return the strategies of several processes, and the precision of sharded models.

    `behaviours` are those of replicas, of shards and of models that split themselves.
    """
    replicas, shards, split = behaviours
    several = functools.partial(derive, **members)
    parallel = several("HPUParallelStrategy", replicas, strategies.DDPStrategy)
    precision = derive("HPUFSDPPrecision", HPUFSDPPrecisionBase, plugins.FSDPPrecision)
    return {
        "HPUParallelStrategy": parallel,
        "HPUDDPStrategy": derive("HPUDDPStrategy", HPUDDPStrategyBase, parallel),
        "HPUFSDPStrategy": several(
            "HPUFSDPStrategy", shards, strategies.FSDPStrategy, _precision_class=precision
        ),
        "HPUModelParallelStrategy": several(
            "HPUModelParallelStrategy", split, strategies.ModelParallelStrategy
        ),
        "HPUFSDPPrecision": precision,
    }


def _launcher(derive: Callable[..., type[Any]], namespace: str, behaviour: type) -> type[Any]:
    stock = importlib.import_module(f"{namespace}.strategies.launchers.subprocess_script")
    return derive(
        "ScriptLauncher",
        behaviour,
        stock._SubprocessScriptLauncher,
        _set_num_threads=staticmethod(stock._set_num_threads_if_needed),
    )


def _connect(namespace: str) -> staticmethod[..., None]:
    """Return Lightning's function that lets processes meet."""
    fabric = importlib.import_module(f"{namespace}.strategies.ddp")
    return staticmethod(fabric._init_dist_connection)


def _derive(
    module: str, namespace: str, name: str, behaviour: type, base: type, **members: Any
) -> type[Any]:
    members |= {"__module__": module, "__doc__": behaviour.__doc__, "namespace": namespace}
    made = _picklable(type(base))(name, (behaviour, base), members)
    _MADE[module, namespace, name] = made
    return made


_MADE: dict[tuple[str, str, str], type[Any]] = {}


@functools.cache
def _picklable(metaclass: type[type]) -> Any:
    """Return a metaclass whose classes are pickled by their namespace too.

    A spawned process gets plug-ins by pickling, and there the module's name may stand for the
    classes of the other Lightning.
    """
    if issubclass(metaclass, _Picklable):
        return metaclass
    made = type(metaclass.__name__, (_Picklable, metaclass), {})
    copyreg.pickle(made, _reduced)  # type: ignore[arg-type]
    return made


class _Picklable(type):
    """Marks the metaclasses of the classes that are made here."""


def _reduced(one: Any) -> Any:
    """Return how a class is found again; one that a user derived has a name of its own."""
    key = (one.__module__, one.namespace, one.__name__)
    return (_found, key) if _MADE.get(key) is one else one.__qualname__


def _found(module: str, namespace: str, name: str) -> type[Any]:
    if (module, namespace, name) not in _MADE:
        importlib.import_module(namespace)  # the hook makes them
    return _MADE[module, namespace, name]
