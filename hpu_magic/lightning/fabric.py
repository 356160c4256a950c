"""Plug-ins for ``lightning.fabric.Fabric``, with the names documented by Lightning-Habana."""

from __future__ import annotations

from typing import Any

from hpu_magic.lightning.names import FABRICS

__all__ = [  # noqa: F822 (see `__getattr__`)
    "HPUAccelerator",
    "HPUCheckpointIO",
    "HPUDDPStrategy",
    "HPUDeepSpeedPrecision",
    "HPUDeepSpeedStrategy",
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
    from hpu_magic.lightning.namespaces import default_namespace, plugins

    return getattr(plugins(default_namespace(FABRICS)), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
