"""Activate the device for ``--hpu``, once per process."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from hpu_magic import backend
from hpu_magic.runtime.execution import mode as execution
from hpu_magic.testing.limits import Limits
from hpu_magic.testing.memory import Failures
from hpu_magic.testing.modes import Modes

_SIMULATOR, _CARDS = "HPU_MAGIC_SIMULATOR", "HPU_MAGIC_CARDS_DIR"
_mode = pytest.StashKey[str]()


def turn_on(config: pytest.Config) -> None:
    """Activate the device for imports of torch in this process and its child processes.

    Raise `pytest.UsageError` if torch is not installed, or if the device or the requested mode
    cannot be activated.
    """
    if importlib.util.find_spec("torch") is None:
        raise pytest.UsageError(
            "--hpu requires PyTorch, which is not installed: pip install torch."
        )
    config.stash[_mode] = _set_mode(config.known_args_namespace.hpu_mode)
    _set_cards_folder(config)
    try:
        backend.activate()
    except (RuntimeError, ValueError) as refused:
        raise pytest.UsageError(f"--hpu: {refused}") from refused
    if backend.is_simulated():
        os.environ[_SIMULATOR] = "1"


def configure(config: pytest.Config) -> None:
    """Register the hooks of the markers and options."""
    config.pluginmanager.register(Failures(), "hpu_magic.failures")
    config.pluginmanager.register(Limits(config), "hpu_magic.limits")
    config.pluginmanager.register(Modes(config, mode_of(config)), "hpu_magic.modes")


def mode_of(config: pytest.Config) -> str:
    """Return the mode of this process, ``"eager"`` or ``"lazy"``."""
    return config.stash[_mode]


def _set_mode(requested: str | None) -> str:
    """Return the mode of this process, and set the environment variable that selects it."""
    loaded = execution.loaded_mode()
    if loaded is not None:
        if requested not in (None, loaded):
            raise pytest.UsageError(
                f"--hpu-mode {requested} has no effect because torch was already imported in "
                f"{loaded} mode; start pytest with "
                f"{execution.VARIABLE}={execution.VALUES[requested]}."
            )
        return loaded
    value = os.environ.get(execution.VARIABLE)
    before = None if value is None else "eager" if value == "0" else "lazy"
    mode = requested or before or "eager"
    if mode != before:
        os.environ[execution.VARIABLE] = execution.VALUES[mode]
    return mode


def _set_cards_folder(config: pytest.Config) -> None:
    """Use simulated cards that no notebook uses, and separate ones for each xdist worker."""
    folder = os.environ.get(_CARDS)
    if not folder:
        folder = made = tempfile.mkdtemp(prefix="hpu_magic_pytest_")
        config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and Path(folder).name != worker:
        folder = os.path.join(folder, worker)
    os.environ[_CARDS] = folder
