"""Registers the device and its compile backend with Dynamo, as soon as Dynamo is imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

from . import _import_hooks


def install(*, compiles: bool) -> None:
    """Register now if Dynamo is there, else when it comes.

    A process in lazy mode compiles nothing, but what fake tensors promise holds there too.
    """
    parts = ("device_interface", "fake_kernels", "compile_backend.backends")
    when_imported(partial(_register, parts if compiles else ("fake_kernels",)))


def when_imported(act: Callable[[], None]) -> None:
    """Do something to Dynamo now if it is there, else when it comes."""
    _import_hooks.when_imported("torch._dynamo", act)


def _register(parts: tuple[str, ...]) -> None:
    for part in parts:
        importlib.import_module(f"habana_frameworks.torch.dynamo.{part}").register()
