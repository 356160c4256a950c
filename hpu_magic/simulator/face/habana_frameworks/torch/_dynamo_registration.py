"""Registers the device and its compile backend with Dynamo, as soon as Dynamo is imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from habana_frameworks.torch import _import_hooks


def install() -> None:
    """Register now if Dynamo is there, else when it comes.

    In lazy mode too: modules with decorated functions are imported there, which the backend
    refuses when they are called.
    """
    when_imported(_register)


def when_imported(act: Callable[[], None]) -> None:
    """Do something to Dynamo now if it is there, else when it comes."""
    _import_hooks.when_imported("torch._dynamo", act)


def _register() -> None:
    for part in ("device_interface", "fake_kernels", "compile_backend.backends"):
        importlib.import_module(f"habana_frameworks.torch.dynamo.{part}").register()
