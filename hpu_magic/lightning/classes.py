"""The plug-in classes for one Lightning: each behavior combined with its base class."""

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
from hpu_magic.lightning.fit.monitor import FitMonitorBase
from hpu_magic.lightning.parallel import (
    FabricParallelHPUStrategyBase,
    HPUDDPStrategyBase,
    TrainerParallelHPUStrategyBase,
)
from hpu_magic.lightning.precision import FabricPrecisionBase, HPUPrecisionPluginBase
from hpu_magic.lightning.processes.launch import ScriptLauncherBase, TrainerScriptLauncherBase
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
    """The classes for the ``Trainer`` of one Lightning."""

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
    """The classes for the ``Fabric`` of one Lightning."""

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
    behaviors: tuple[type, type, type],
    **members: Any,
) -> dict[str, type[Any]]:
    """Return the strategies of several processes, and the precision of sharded models.

    `behaviors` are those of replicas, of shards, and of models with ``configure_model``.
    """
    replicas, shards, split = behaviors
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


def _launcher(derive: Callable[..., type[Any]], namespace: str, behavior: type) -> type[Any]:
    stock = importlib.import_module(f"{namespace}.strategies.launchers.subprocess_script")
    return derive(
        "ScriptLauncher",
        behavior,
        stock._SubprocessScriptLauncher,
        _set_num_threads=staticmethod(stock._set_num_threads_if_needed),
    )


def _connect(namespace: str) -> staticmethod[..., None]:
    """Return Lightning's function that initializes the process group."""
    fabric = importlib.import_module(f"{namespace}.strategies.ddp")
    return staticmethod(fabric._init_dist_connection)


def _derive(
    module: str, namespace: str, name: str, behavior: type, base: type, **members: Any
) -> type[Any]:
    members |= {"__module__": module, "__doc__": behavior.__doc__, "namespace": namespace}
    derived = _picklable(type(base))(name, (behavior, base), members)
    _DERIVED[module, namespace, name] = derived
    return derived


_DERIVED: dict[tuple[str, str, str], type[Any]] = {}


@functools.cache
def _picklable(metaclass: type[type]) -> Any:
    """Return a metaclass whose classes are pickled with their namespace.

    A spawned process unpickles plug-ins. There, the module's name may refer to the classes of the
    other Lightning.
    """
    if issubclass(metaclass, _Picklable):
        return metaclass
    picklable = type(metaclass.__name__, (_Picklable, metaclass), {})
    copyreg.pickle(picklable, _reduced)  # type: ignore[arg-type]
    return picklable


class _Picklable(type):
    """Marks the metaclasses of derived classes."""


def _reduced(kind: Any) -> Any:
    """Return the pickled form of a class: a key, or the name of a class that a user derived."""
    key = (kind.__module__, kind.namespace, kind.__name__)
    return (_restored, key) if _DERIVED.get(key) is kind else kind.__qualname__


def _restored(module: str, namespace: str, name: str) -> type[Any]:
    if (module, namespace, name) not in _DERIVED:
        importlib.import_module(namespace)  # the import hook derives them
    return _DERIVED[module, namespace, name]
