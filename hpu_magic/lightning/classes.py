"""Create the plug-in classes for one copy of Lightning by combining its base classes with ours."""

from __future__ import annotations

import copyreg
import functools
import importlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from hpu_magic.lightning.accelerator import HPUAcceleratorBase
from hpu_magic.lightning.checkpoint import HPUCheckpointIOBase
from hpu_magic.lightning.datamodule import HPUDataModuleBase
from hpu_magic.lightning.deepspeed import (
    FabricDeepSpeedBase,
    HPUDeepSpeedPrecisionBase,
    TrainerDeepSpeedBase,
)
from hpu_magic.lightning.fit.monitor import LightningMonitorBase
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


class Plugins(SimpleNamespace):
    """The plug-in classes for the ``Trainer`` or ``Fabric`` of one copy of Lightning."""


def make(lightning: ModuleType, namespace: str, *, fabric: bool) -> Plugins:
    """Create the classes for the ``Trainer`` or ``Fabric`` in one of Lightning's namespaces."""
    module = "hpu_magic.lightning.fabric" if fabric else "hpu_magic.lightning"
    derive = functools.partial(_derive, module, namespace)
    strategies, plugins = lightning.strategies, lightning.plugins
    accelerator = lightning.accelerators.Accelerator
    checkpoint_io = derive("HPUCheckpointIO", HPUCheckpointIOBase, plugins.TorchCheckpointIO)
    sharded = derive("HPUFSDPPrecision", HPUFSDPPrecisionBase, plugins.FSDPPrecision)
    by_deepspeed = derive(
        "HPUDeepSpeedPrecision" if fabric else "HPUDeepSpeedPrecisionPlugin",
        HPUDeepSpeedPrecisionBase,
        plugins.DeepSpeedPrecision,
    )
    single, replicas, shards, split, zero, precision = _FOR_FABRIC if fabric else _FOR_TRAINER
    several = functools.partial(
        derive,
        _checkpoint_io_class=checkpoint_io,
        _script_launcher_class=_launcher(derive, namespace, fabric=fabric),
        _connect=_connect(namespace),
    )
    parallel = several("HPUParallelStrategy", replicas, strategies.DDPStrategy)
    stock_fsdp, stock_split = strategies.FSDPStrategy, strategies.ModelParallelStrategy
    classes = [
        derive("HPUAccelerator", HPUAcceleratorBase, accelerator),
        derive(
            "SingleHPUStrategy",
            single,
            strategies.SingleDeviceStrategy,
            _checkpoint_io_class=checkpoint_io,
        ),
        parallel,
        derive("HPUDDPStrategy", HPUDDPStrategyBase, parallel),
        several("HPUFSDPStrategy", shards, stock_fsdp, _precision_class=sharded),
        several("HPUModelParallelStrategy", split, stock_split),
        several(
            "HPUDeepSpeedStrategy",
            zero,
            strategies.DeepSpeedStrategy,
            _precision_class=by_deepspeed,
        ),
        derive(
            "HPUPrecision" if fabric else "HPUPrecisionPlugin",
            precision,
            plugins.Precision,
            _mixed_precision_class=plugins.MixedPrecision,
        ),
        sharded,
        by_deepspeed,
        checkpoint_io,
    ]
    if not fabric:
        profiler = lightning.profilers.PyTorchProfiler
        classes.append(derive("HPUProfiler", HPUProfilerBase, profiler))
        classes.append(derive("HPUDataModule", HPUDataModuleBase, lightning.LightningDataModule))
        classes.append(derive("FitMonitor", LightningMonitorBase, lightning.Callback))
    return Plugins(namespace=namespace, **{each.__name__: each for each in classes})


# Strategies for a single card, replicas, shards, models with ``configure_model`` and DeepSpeed, and
# the precision plug-in.
_FOR_TRAINER = (
    TrainerSingleHPUStrategyBase,
    TrainerParallelHPUStrategyBase,
    TrainerFSDPBase,
    TrainerModelParallelBase,
    TrainerDeepSpeedBase,
    HPUPrecisionPluginBase,
)
_FOR_FABRIC = (
    SingleHPUStrategyBase,
    FabricParallelHPUStrategyBase,
    FabricFSDPBase,
    FabricModelParallelBase,
    FabricDeepSpeedBase,
    FabricPrecisionBase,
)


def _launcher(derive: Callable[..., type[Any]], namespace: str, *, fabric: bool) -> type[Any]:
    stock = importlib.import_module(f"{namespace}.strategies.launchers.subprocess_script")
    return derive(
        "ScriptLauncher",
        ScriptLauncherBase if fabric else TrainerScriptLauncherBase,
        stock._SubprocessScriptLauncher,
        _set_num_threads=staticmethod(stock._set_num_threads_if_needed),
    )


def _connect(namespace: str) -> staticmethod[..., None]:
    """Return Lightning's function that initializes the process group."""
    return staticmethod(
        importlib.import_module(f"{namespace}.strategies.ddp")._init_dist_connection
    )


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
    """Return a metaclass whose classes are pickled together with their namespace.

    A spawned process unpickles the plug-ins, and its module may contain the classes for the other
    copy of Lightning.
    """
    if issubclass(metaclass, _Picklable):
        return metaclass
    picklable = type(metaclass.__name__, (_Picklable, metaclass), {})
    copyreg.pickle(picklable, _reduced)  # type: ignore[arg-type]
    return picklable


class _Picklable(type):
    """Marks the metaclasses of derived classes."""


def _reduced(kind: Any) -> Any:
    """Return the pickled form of a class: its key or, for a user's subclass, its name."""
    key = (kind.__module__, kind.namespace, kind.__name__)
    return (_restored, key) if _DERIVED.get(key) is kind else kind.__qualname__


def _restored(module: str, namespace: str, name: str) -> type[Any]:
    if (module, namespace, name) not in _DERIVED:
        importlib.import_module(namespace)  # the import hook creates the classes
    return _DERIVED[module, namespace, name]
