"""Starts a dry run in this process when the engine is loaded, and writes its record."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

SWITCH = "HPU_MAGIC_DRY_RUN"
_record: Callable[[dict[str, Any]], dict[str, Any]] | None = None
_exit = os._exit


@dataclass(frozen=True)
class Options:
    """What to run, and how; `SWITCH` contains the options as JSON.

    Attributes
    ----------
    record : str
        File for the record.
    steps : int or None
        Number of optimizer steps to run; None stops when the steps repeat.
    whole : bool
        Run to the end.
    values : list of (str, int, float)
        Stand-ins for reads in a line of a file.
    cell : dict or None
        Arguments of `cell.run`; None runs a script.
    owner : int or None
        PID of the process that runs the script or cell.
    """

    record: str
    steps: int | None
    whole: bool
    values: list[tuple[str, int, float]]
    cell: dict[str, Any] | None
    owner: int | None = None

    @classmethod
    def from_environment(cls) -> Options:
        """Return the options of this process."""
        return cls(**json.loads(os.environ[SWITCH]))


def is_on() -> bool:
    """Return whether this process is part of a dry run."""
    return SWITCH in os.environ


def become_owner() -> Options:
    """Make this the only process of the dry run that may use the card, and return its options."""
    options = replace(Options.from_environment(), owner=os.getpid())
    os.environ[SWITCH] = json.dumps(asdict(options))
    os._exit = _leave  # type: ignore[assignment]
    return options


def _leave(status: int) -> None:
    """Replace `os._exit` for the script; children that it forks also call this."""
    if Options.from_environment().owner == os.getpid():
        leave(status, {"how": "exit"})
    _exit(status)


def leave(status: int, ended: dict[str, Any]) -> None:
    """Write the record of a run that has ended in this way, and exit."""
    try:
        _finish(ended)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        _exit(status)  # destroying models and datasets would only take time


def check_owner() -> None:
    """Raise RuntimeError if this process may not use the card."""
    options = Options.from_environment()
    if options.owner != os.getpid():
        raise RuntimeError(
            f"Only the main process of a dry run can use the card, not process {os.getpid()}, "
            "which it started: call the function in the main process, without "
            "torch.multiprocessing.spawn or a launcher, and pass --cards N to run it with N ranks."
        )


def start(native: Any) -> None:
    """Switch the engine to dry runs. The bridge calls this when it loads the engine."""
    import torch

    from hpu_magic.simulator.dry_run.record import Recorder
    from hpu_magic.simulator.dry_run.steps import Steps

    global _record
    options = Options.from_environment()
    if options.owner != os.getpid():
        return
    native.start_dry_run([tuple(each) for each in options.values])
    steps = Steps(options.steps, whole=options.whole, leave=lambda: leave(0, {"how": "stopped"}))
    recorder = Recorder(native, steps, options.values)
    recorder.install()
    if torch.distributed.is_available():
        from hpu_magic.simulator.dry_run import world

        world.install()
    _record = recorder.record


def _finish(ended: dict[str, Any]) -> None:
    if _record is None:
        import torch  # noqa: F401  # loads the engine, if the script did not
    assert _record is not None, "importing torch loads the engine"
    _write(_record(ended))


def refuse(why: str) -> None:
    """Write the reason why the run cannot start instead of its record."""
    _write({"refused": why})


def _write(record: dict[str, Any]) -> None:
    Path(Options.from_environment().record).write_text(json.dumps(record))
