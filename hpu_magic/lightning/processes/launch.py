"""Start the other processes of a script, one per card, and end all processes together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.lightning.processes.watch import begun_by_this, watch_from_child, watch_from_parent

_RUNNER = "hpu_magic.lightning"


class ScriptLauncherBase:
    """Reruns the script once for each other card, unless a launcher has started all processes."""

    cluster_environment: Any
    num_processes: int
    num_nodes: int
    procs: list[Any]
    _set_num_threads: Callable[[int], None]

    @property
    def is_interactive_compatible(self) -> bool:
        """Whether all processes are already running, as in a notebook's workers."""
        return self._is_alone or bool(self.cluster_environment.creates_processes_externally)

    @property
    def _is_alone(self) -> bool:
        return self.num_processes * self.num_nodes == 1

    def launch(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start the other processes, and then call the function that connects to them."""
        self.cluster_environment.validate_settings(
            num_devices=self.num_processes, num_nodes=self.num_nodes
        )
        watch_from_child()
        if not self.is_interactive_compatible:
            if self.num_processes > 1:
                _require_script(self.num_processes)
            with begun_by_this() as pipe, _original_command():
                self._call_children_scripts()  # type: ignore[attr-defined]
            watch_from_parent(self.procs, pipe)
        self._set_num_threads(self.num_processes)
        return function(*args, **kwargs)


class TrainerScriptLauncherBase(ScriptLauncherBase):
    """The script launcher for ``Trainer``."""

    def launch(
        self, function: Callable[..., Any], *args: Any, trainer: Any = None, **kwargs: Any
    ) -> Any:
        """Start the other processes, and then call the function without passing `trainer`."""
        return super().launch(function, *args, **kwargs)


@contextmanager
def _original_command() -> Generator[None, None, None]:
    """Make Lightning rerun ``python -m hpu_magic.lightning train.py`` if that was the command.

    By default, Lightning reruns only the script, because the script is the main module.
    """
    main, arguments = sys.modules["__main__"], sys.argv
    spec = main.__spec__
    if sys.orig_argv[1:3] == ["-m", _RUNNER]:
        main.__spec__ = ModuleSpec(_RUNNER, None)
        sys.argv = ["", *arguments]
    try:
        yield
    finally:
        main.__spec__, sys.argv = spec, arguments


def _require_script(processes: int) -> None:
    """Raise HPUError if the program comes from ``python -c`` or standard input, not from a file."""
    main = sys.modules["__main__"]
    if main.__spec__ is None and not os.path.isfile(sys.argv[0]):
        raise HPUError(
            f"devices={processes} runs the script once per card, but this program is not in a "
            "file: save it to a file, or start the processes with torchrun."
        )
