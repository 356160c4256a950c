"""Make Lightning's connectors choose our classes in ``Trainer`` and ``Fabric``.

Lightning does not support the accelerator ``"hpu"``, so the methods of its two connectors are
wrapped once. The wrappers handle ``hpu`` and call Lightning's methods in all other cases.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.lightning.choices import WRAPPED, Choices, Flags

SUPPORTED_LIGHTNING = ("2.5", "2.6")
_PATCHED = "_hpu_magic_patched"


class UnsupportedLightningError(HPUError, ImportError):
    """Raised if hpu_magic does not support the accelerator connector of this Lightning version."""


def _require_known(lightning: ModuleType, connector: type, flags: Flags) -> None:
    version = str(getattr(lightning, "__version__", "unknown"))
    known = " or ".join(SUPPORTED_LIGHTNING)
    if not version.startswith(tuple(f"{release}." for release in SUPPORTED_LIGHTNING)):
        raise UnsupportedLightningError(
            f"{lightning.__name__} {version} is not supported: install Lightning {known} to use "
            f"{flags.user}(accelerator='hpu')."
        )
    for name, needed in WRAPPED.items():
        method = connector.__dict__.get(name)
        function = method.__func__ if isinstance(method, staticmethod) else method
        takes = set(inspect.signature(function).parameters) - {"self"} if function else None
        if takes is None or not needed <= takes or (takes and not needed):
            raise UnsupportedLightningError(
                f"{flags.user}(accelerator='hpu') is not supported with {lightning.__name__} "
                f"{version}: its accelerator connector has no method {name} with the expected "
                f"parameters. Install Lightning {known}."
            )


def patch(lightning: ModuleType, connector: type, choices: Choices) -> None:
    """Wrap the methods of Lightning's connector class to support ``hpu``, unless they are wrapped.

    Raises
    ------
    UnsupportedLightningError
        This version of Lightning lacks methods that the supported releases have.
    """
    if _PATCHED in connector.__dict__:
        return
    _require_known(lightning, connector, choices.flags)
    for name in WRAPPED:
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
