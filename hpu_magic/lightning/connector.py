"""Make Lightning's accelerator connector choose our classes for ``hpu``.

Lightning refuses the name ``"hpu"`` inside ``_AcceleratorConnector``, so three
of its methods are wrapped, once: they answer for ``hpu`` and hand every other
case to Lightning's own. One more puts ``hpu`` before the CPU for
``accelerator="auto"``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hpu_magic.lightning.precision import SUPPORTED_PRECISIONS

__all__ = ["SUPPORTED_LIGHTNING", "UnsupportedLightningError", "patch"]

SUPPORTED_LIGHTNING = ("2.5", "2.6")
WRAPPED = (
    "_choose_strategy",
    "_check_strategy_and_fallback",
    "_check_and_init_precision",
    "_choose_auto_accelerator",
)
_PATCHED = "_hpu_magic_patched"


class UnsupportedLightningError(ImportError):
    """Refusal of a Lightning whose accelerator connector hpu_magic does not know."""


def _require_known(pytorch: ModuleType, connector: type) -> None:
    version = str(getattr(pytorch, "__version__", "unknown"))
    known = " and ".join(SUPPORTED_LIGHTNING)
    if not version.startswith(tuple(f"{release}." for release in SUPPORTED_LIGHTNING)):
        raise UnsupportedLightningError(
            f"hpu_magic knows Lightning {known}, and this is {pytorch.__name__} {version}: "
            "install one of those to use Trainer(accelerator='hpu')."
        )
    for name in WRAPPED:
        static = name == "_choose_auto_accelerator"
        method = connector.__dict__.get(name)
        function = method.__func__ if isinstance(method, staticmethod) else method
        takes = list(inspect.signature(function).parameters) if callable(function) else None
        if takes not in ([["self"], []] if static else [["self"]]):
            raise UnsupportedLightningError(
                f"Trainer(accelerator='hpu') is not possible with {pytorch.__name__} {version}: "
                f"its accelerator connector has no method {name} of the known form. "
                f"hpu_magic was tested with Lightning {known}."
            )


def patch(pytorch: ModuleType, connector: type, plugins: Any) -> None:
    """Wrap the connector's choices once.

    Parameters
    ----------
    pytorch
        ``lightning.pytorch`` or ``pytorch_lightning``.
    connector
        Its ``_AcceleratorConnector``.
    plugins
        The classes to choose (see ``namespaces.Plugins``).

    Raises
    ------
    UnsupportedLightningError
        When this Lightning has not the methods the known releases have.
    """
    if _PATCHED in connector.__dict__:
        return
    _require_known(pytorch, connector)
    misconfiguration = pytorch.utilities.exceptions.MisconfigurationException

    def on_hpu(self: Any) -> bool:
        flag = self._accelerator_flag
        return flag == "hpu" or isinstance(flag, plugins.HPUAccelerator)

    def choose_strategy(original: Callable[..., Any], self: Any) -> Any:
        if not on_hpu(self):
            return original(self)
        if self._num_nodes_flag > 1:
            raise misconfiguration(
                f"num_nodes={self._num_nodes_flag} cannot be had: training on several machines "
                "is not supported on hpu yet, so write num_nodes=1."
            )
        return plugins.SingleHPUStrategy(device=self._parallel_devices[0])

    def check_strategy(original: Callable[..., Any], self: Any) -> Any:
        flag = self._strategy_flag
        if on_hpu(self) and isinstance(flag, str) and flag != "hpu_single":
            raise misconfiguration(
                f"strategy={flag!r} is not supported on hpu: leave strategy out, or write "
                "strategy='hpu_single'."
            )
        return original(self)

    def init_precision(original: Callable[..., Any], self: Any) -> Any:
        ours = on_hpu(self) or isinstance(self.strategy, plugins.SingleHPUStrategy)
        if not ours or self._precision_plugin_flag is not None:
            return original(self)
        if self._precision_flag in ("bf16-true", "16-true"):
            return original(self)
        if self._precision_flag not in SUPPORTED_PRECISIONS:
            raise misconfiguration(
                f"precision={self._precision_flag!r} is not supported on hpu: "
                "write precision='bf16-mixed' or precision='32-true'."
            )
        return plugins.HPUPrecisionPlugin(self._precision_flag)

    def choose_auto(original: Callable[..., Any], *self: Any) -> str:
        chosen = original(*self)
        return "hpu" if chosen == "cpu" and plugins.HPUAccelerator.is_available() else chosen

    for name, replacement in zip(
        WRAPPED, (choose_strategy, check_strategy, init_precision, choose_auto), strict=True
    ):
        _wrap(connector, name, replacement)
    setattr(connector, _PATCHED, True)


def _wrap(connector: type, name: str, replacement: Callable[..., Any]) -> None:
    method = connector.__dict__[name]
    static = isinstance(method, staticmethod)
    original = method.__func__ if static else method

    @functools.wraps(original)
    def wrapper(*args: Any) -> Any:
        return replacement(original, *args)

    setattr(connector, name, staticmethod(wrapper) if static else wrapper)
