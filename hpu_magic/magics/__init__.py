"""The IPython magics, one module per group of related magics.

None of these modules imports torch, Bokeh or ipywidgets at the top level, so the extension loads
instantly.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hpu_magic import extras

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from hpu_magic.magics.command import CommandMagics
    from hpu_magic.magics.explained_errors import ExplainedErrors

_FAMILIES = (
    ("status", "StatusMagics"),
    ("move", "MoveMagics"),
    ("autocast", "AutocastMagics"),
    ("fp8", "Fp8Magics"),
    ("memory", "MemoryMagics"),
    ("timing", "TimingMagics"),
    ("fit", "FitMagics"),
    ("flags", "FlagsMagics"),
    ("ledger", "LedgerMagics"),
    ("profiling", "ProfileMagics"),
    ("graphs", "GraphMagics"),
    ("from_cuda", "FromCudaMagics"),
    ("workers", "WorkersMagics"),
    ("serving", "ServingMagics"),
    ("planning", "PlanningMagics"),
    ("dry_runs", "DryRunMagics"),
)
_NEEDED = ("ipykernel", "ipywidgets", "anywidget", "bokeh")
_loaded: list[CommandMagics] = []
_explained: list[ExplainedErrors] = []


def load(shell: InteractiveShell) -> None:
    """Set up the extension in `shell`, and print the state of the device.

    Raises
    ------
    UsageError
        A required package is not installed.
    """
    from IPython.core.error import UsageError

    if why := extras.absence("%load_ext hpu_magic", "notebook", _NEEDED):
        raise UsageError(why)
    from hpu_magic.runtime.device import device
    from hpu_magic.runtime.start import first_import, restart

    # If this variable is not set before torch is imported, PyTorch's profiler prints a line for
    # each stage.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    restart.attach(connection_file(shell))
    # Set the variables now, because the vendor's library reads them when it is loaded.
    remembered = {} if device.bridge_loaded() else restart.apply()
    first_import.observe(lambda: _cell_number(shell))
    _announce(remembered)
    _install_lightning_hook()
    _register(shell)


def unload(shell: InteractiveShell) -> None:
    """Remove the magics from `shell`; the device is not changed."""
    from hpu_magic.magics import cell, completion, control, session

    while _explained:
        _explained.pop().close()
    session.disable(shell)
    cell.disable(shell)
    control.disable(shell)
    completion.disable(shell)
    configurables: list[Any] = shell.configurables  # type: ignore[assignment]
    for magics in _loaded:
        magics.close()
        for kind, names in magics.magics.items():
            for name in names:
                shell.magics_manager.magics[kind].pop(name, None)
        configurables.remove(magics)
    if _loaded:
        configurables.remove(_loaded[0].settings)
    _loaded.clear()


def _announce(remembered: dict[str, str]) -> None:
    from hpu_magic import backend

    try:
        print(backend.activate())
    except backend.TooLateError as late:
        print(f"{late} Type %hpu_mode --restart to restart this kernel.")
    except (RuntimeError, ValueError) as error:
        print(f"No hpu device: {error}")
    from hpu_magic.runtime.start import restart

    if remembered:
        print(f"Remembered for this {restart.place()}: {_settings(remembered)}.")
    elif spent := {
        name: value for name, value in restart.recall().items() if os.environ.get(name) != value
    }:
        print(
            f"Remembered for this {restart.place()}, but torch had already been imported: "
            f"{_settings(spent)}. Put %load_ext hpu_magic above the first import of torch."
        )
    for difference in restart.differences():
        print(difference)


def _settings(environment: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in environment.items())


def _install_lightning_hook() -> None:
    from hpu_magic.lightning import hook

    hook.install()


def _register(shell: InteractiveShell) -> None:
    from hpu_magic.magics import cell, completion, control, session
    from hpu_magic.magics.explained_errors import ExplainedErrors
    from hpu_magic.magics.settings import HPUMagics

    session.enable(shell)
    _explained.append(ExplainedErrors(shell))
    cell.enable(shell)
    _forget_wrong_defaults(shell, HPUMagics)
    settings = HPUMagics(parent=shell)
    shell.configurables.append(settings)  # type: ignore[arg-type]
    for module, name in _FAMILIES:
        family = getattr(import_module(f"{__name__}.{module}"), name)
        _loaded.append(family(shell, settings))
        shell.register_magics(_loaded[-1])
    completion.enable(shell)
    control.enable(shell)


def _forget_wrong_defaults(shell: InteractiveShell, settings: Any) -> None:
    """Remove values that `settings` rejects from the shell's configuration.

    If a ``%config`` command is rejected, IPython keeps its value in the configuration and applies
    it to the next object.
    """
    from traitlets import TraitError

    configured = shell.config.get(settings.__name__, {})
    for name, value in list(configured.items()):
        try:
            settings(**{name: value})
        except TraitError as error:
            del configured[name]
            print(f"{error} The default is used instead.")


def connection_file(shell: InteractiveShell) -> str | None:
    """Return the connection file of the shell's kernel, or None in a terminal."""
    kernel = getattr(shell, "kernel", None)
    return getattr(getattr(kernel, "parent", None), "connection_file", None)


def _cell_number(shell: InteractiveShell) -> int | None:
    history = shell.history_manager
    return len(history.input_hist_raw) - 1 if history is not None else None
