"""Plug-ins for ``lightning.fabric.Fabric``, with the documented names of Lightning-Habana."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpu_magic.lightning.names import FABRICS

if TYPE_CHECKING:
    HPUAccelerator: type[Any]
    HPUCheckpointIO: type[Any]
    HPUDDPStrategy: type[Any]
    HPUFSDPPrecision: type[Any]
    HPUFSDPStrategy: type[Any]
    HPUModelParallelStrategy: type[Any]
    HPUParallelStrategy: type[Any]
    HPUPrecision: type[Any]
    SingleHPUStrategy: type[Any]

__all__ = [
    "HPUAccelerator",
    "HPUCheckpointIO",
    "HPUDDPStrategy",
    "HPUFSDPPrecision",
    "HPUFSDPStrategy",
    "HPUModelParallelStrategy",
    "HPUParallelStrategy",
    "HPUPrecision",
    "SingleHPUStrategy",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hpu_magic.lightning.namespaces import default_namespace, fabric_plugins

    return getattr(fabric_plugins(default_namespace(FABRICS)), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
