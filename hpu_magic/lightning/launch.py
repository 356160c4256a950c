"""Starting a script's other processes, one a card, and ending them together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.lightning.watch import begun_by_this, watch_from_child, watch_from_parent

_RUNNER = "hpu_magic.lightning"


class ScriptLauncherBase:
    """Runs the script again for each further card, unless somebody else has started it for all."""

    cluster_environment: Any
    num_processes: int
    num_nodes: int
    procs: list[Any]
    _set_num_threads: Callable[[int], None]

    @property
    def is_interactive_compatible(self) -> bool:
        """Whether nothing is left to start, as in the workers of a notebook."""
        return self._is_alone or bool(self.cluster_environment.creates_processes_externally)

    @property
    def _is_alone(self) -> bool:
        return self.num_processes * self.num_nodes == 1

    def launch(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start the other processes, then call the function, which meets them."""
        self.cluster_environment.validate_settings(
            num_devices=self.num_processes, num_nodes=self.num_nodes
        )
        watch_from_child()
        if not self.is_interactive_compatible:
            if self.num_processes > 1:
                _require_script(self.num_processes)
            with begun_by_this() as pipe, _as_it_was_started():
                self._call_children_scripts()  # type: ignore[attr-defined]
            watch_from_parent(self.procs, pipe)
        self._set_num_threads(self.num_processes)
        return function(*args, **kwargs)


class TrainerScriptLauncherBase(ScriptLauncherBase):
    """The same, for ``Trainer``."""

    def launch(
        self, function: Callable[..., Any], *args: Any, trainer: Any = None, **kwargs: Any
    ) -> Any:
        """Start the other processes, then call the function; `trainer` is not its own."""
        return super().launch(function, *args, **kwargs)


@contextmanager
def _as_it_was_started() -> Generator[None, None, None]:
    """Let Lightning run ``python -m hpu_magic.lightning train.py`` again where that is what runs.

    It looks at the main module and at its arguments, which are the script's own.
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
    """Refuse where there is no file that other processes could run.

    Raises
    ------
    HPUError
        The program came by ``python -c`` or on the standard input.
    """
    main = sys.modules["__main__"]
    if main.__spec__ is None and not os.path.isfile(sys.argv[0]):
        raise HPUError(
            f"devices={processes} runs the script once for each card, and this program is in no "
            "file: write it to one, or start the processes with torchrun."
        )
