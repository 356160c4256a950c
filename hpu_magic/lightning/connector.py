"""Make Lightning's connectors choose our classes for ``hpu``, in ``Trainer`` and in ``Fabric``.

Lightning knows no name ``"hpu"``, so methods of its two connectors are wrapped, once: they answer
for ``hpu`` and hand every other case to Lightning's own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hpu_magic.lightning.accelerator import HPUAcceleratorBase
from hpu_magic.lightning.precision import SUPPORTED_PRECISIONS
from hpu_magic.lightning.strategy import SINGLE, SingleHPUStrategyBase

__all__ = ["SUPPORTED_LIGHTNING", "Flags", "UnsupportedLightningError", "patch"]

SUPPORTED_LIGHTNING = ("2.5", "2.6")
FOR_SEVERAL_CARDS = ("hpu_parallel", "hpu_ddp", "hpu_fsdp", "hpu_deepspeed")
_PATCHED = "_hpu_magic_patched"
# What each method that is wrapped must take.
_TAKES: dict[str, set[str]] = {
    "_check_config_and_set_final_flags": {"strategy", "accelerator", "precision", "plugins"},
    "_check_device_config_and_set_final_flags": {"devices", "num_nodes"},
    "_choose_strategy": set(),
    "_check_strategy_and_fallback": set(),
    "_check_and_init_precision": set(),
    "_choose_auto_accelerator": set(),
}


class UnsupportedLightningError(ImportError):
    """Refusal of a Lightning whose accelerator connector hpu_magic does not know."""


@dataclass(frozen=True)
class Flags:
    """What the connectors of ``Trainer`` and of ``Fabric`` call differently."""

    user: str
    precision: str
    precision_plugin: str
    plugin_class: str


TRAINER = Flags("Trainer", "_precision_flag", "_precision_plugin_flag", "HPUPrecisionPlugin")
FABRIC = Flags("Fabric", "_precision_input", "_precision_instance", "HPUPrecision")


def _require_known(lightning: ModuleType, connector: type, flags: Flags) -> None:
    version = str(getattr(lightning, "__version__", "unknown"))
    known = " and ".join(SUPPORTED_LIGHTNING)
    if not version.startswith(tuple(f"{release}." for release in SUPPORTED_LIGHTNING)):
        raise UnsupportedLightningError(
            f"hpu_magic knows Lightning {known}, and this is {lightning.__name__} {version}: "
            f"install one of those to use {flags.user}(accelerator='hpu')."
        )
    for name, needed in _TAKES.items():
        method = connector.__dict__.get(name)
        function = method.__func__ if isinstance(method, staticmethod) else method
        takes = set(inspect.signature(function).parameters) - {"self"} if function else None
        if takes is None or not needed <= takes or (takes and not needed):
            raise UnsupportedLightningError(
                f"{flags.user}(accelerator='hpu') is not possible with {lightning.__name__} "
                f"{version}: its accelerator connector has no method {name} of the known form. "
                f"hpu_magic was tested with Lightning {known}."
            )


def patch(
    lightning: ModuleType, connector: type, plugins: Any, flags: Flags, refused: type[Exception]
) -> None:
    """Wrap the connector's choices once.

    Parameters
    ----------
    lightning
        ``lightning.pytorch``, ``lightning.fabric``, ``pytorch_lightning`` or ``lightning_fabric``.
    connector
        Its connector class.
    plugins
        The classes to choose (see ``namespaces``).
    flags
        The names of its attributes.
    refused
        What it raises for arguments that do not fit.

    Raises
    ------
    UnsupportedLightningError
        When this Lightning has not the methods the known releases have.
    """
    if _PATCHED in connector.__dict__:
        return
    _require_known(lightning, connector, flags)
    choices = _Choices(plugins, flags, refused)
    for name in _TAKES:
        _wrap(connector, name, getattr(choices, name.removeprefix("_")))
    setattr(connector, _PATCHED, True)


def _wrap(connector: type, name: str, replacement: Callable[..., Any]) -> None:
    method = connector.__dict__[name]
    static = isinstance(method, staticmethod)
    original = method.__func__ if static else method

    @functools.wraps(original)
    def wrapper(*args: Any, **options: Any) -> Any:
        return replacement(original, *args, **options)

    setattr(connector, name, staticmethod(wrapper) if static else wrapper)


class _Choices:
    """What the wrapped methods do: each gets the one that it wraps, and that one's arguments."""

    def __init__(self, plugins: Any, flags: Flags, refused: type[Exception]) -> None:
        self._plugins = plugins
        self._flags = flags
        self._refused = refused

    @staticmethod
    def _on_hpu(connector: Any) -> bool:
        flag = connector._accelerator_flag
        return flag == "hpu" or isinstance(flag, HPUAcceleratorBase)

    def check_config_and_set_final_flags(
        self, original: Callable[..., Any], connector: Any, **given: Any
    ) -> None:
        strategy, accelerator = given["strategy"], given["accelerator"]
        name = strategy.lower() if isinstance(strategy, str) else None
        if name in FOR_SEVERAL_CARDS:
            raise self._refused(
                f"strategy={strategy!r} trains on several cards, which is not supported yet: "
                f"write strategy={SINGLE!r}."
            )
        if isinstance(strategy, SingleHPUStrategyBase):
            self._require_own(strategy, self._plugins.SingleHPUStrategy)
        if accelerator == "auto" and (
            name == SINGLE
            or (isinstance(strategy, SingleHPUStrategyBase) and not strategy._accelerator)
        ):
            given["accelerator"] = accelerator = "hpu"
        if given["precision"] == "fp8" and (
            accelerator in ("auto", "hpu") or isinstance(accelerator, HPUAcceleratorBase)
        ):
            raise self._refused(
                "precision='fp8' leaves open which layers it is for: write "
                f"plugins=[{self._flags.plugin_class}(precision='fp8', replace_layers=True)]."
            )
        original(connector, **given)

    def _require_own(self, plugin: Any, own: type) -> None:
        if not isinstance(plugin, own):
            raise self._refused(
                f"This {type(plugin).__name__} is made for {plugin.namespace}, and this is the "
                f"{self._flags.user} of {self._plugins.namespace}: take the one of "
                f"hpu_magic.lightning.namespaces."
                f"{'fabric_plugins' if self._flags is FABRIC else 'plugins'}"
                f"({self._plugins.namespace!r})."
            )

    def check_device_config_and_set_final_flags(
        self, original: Callable[..., Any], connector: Any, **given: Any
    ) -> None:
        if self._on_hpu(connector) and given["devices"] != "auto":
            self._plugins.HPUAccelerator.parse_devices(given["devices"])
        original(connector, **given)

    def choose_strategy(self, original: Callable[..., Any], connector: Any) -> Any:
        if not self._on_hpu(connector):
            return original(connector)
        return self._plugins.SingleHPUStrategy(device=connector._parallel_devices[0])

    def check_strategy_and_fallback(self, original: Callable[..., Any], connector: Any) -> Any:
        flag = connector._strategy_flag
        if self._on_hpu(connector):
            if connector._num_nodes_flag > 1:
                raise self._refused(
                    f"num_nodes={connector._num_nodes_flag} cannot be had: training on several "
                    "machines is not supported on hpu yet, so write num_nodes=1."
                )
            several = hasattr(flag, "parallel_devices")
            if several or (isinstance(flag, str) and flag != SINGLE):
                shown = type(flag).__name__ if several else repr(flag)
                raise self._refused(
                    f"strategy={shown} is not supported on hpu: leave strategy out, or write "
                    f"strategy={SINGLE!r}."
                )
        elif flag == SINGLE or isinstance(flag, SingleHPUStrategyBase):
            shown = repr(flag) if isinstance(flag, str) else type(flag).__name__
            raise self._refused(
                f"strategy={shown} trains on hpu, and accelerator is "
                f"{connector._accelerator_flag!r}: write accelerator='hpu'."
            )
        return original(connector)

    def check_and_init_precision(self, original: Callable[..., Any], connector: Any) -> Any:
        precision = getattr(connector, self._flags.precision)
        if (
            not self._on_hpu(connector)
            or getattr(connector, self._flags.precision_plugin) is not None
            or precision in ("bf16-true", "16-true")
        ):
            return original(connector)
        if precision not in SUPPORTED_PRECISIONS:
            raise self._refused(
                f"precision={precision!r} is not supported on hpu: "
                f"write {', '.join(map(repr, SUPPORTED_PRECISIONS))}, 'bf16-true' or '16-true'."
            )
        return getattr(self._plugins, self._flags.plugin_class)(precision)

    def choose_auto_accelerator(self, original: Callable[..., Any], *connector: Any) -> str:
        chosen: str = original(*connector)
        available = self._plugins.HPUAccelerator.is_available
        return "hpu" if chosen == "cpu" and available() else chosen
