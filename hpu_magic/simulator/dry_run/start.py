"""Starts a dry run in this process when the engine is loaded, and writes its record."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hpu_magic.simulator.activation import is_imported

SWITCH = "HPU_MAGIC_DRY_RUN"
_record: Callable[[dict[str, Any]], dict[str, Any]] | None = None
_exit = os._exit
_options: Options | None = None
_command: Any = None
_collections = gc.get_threshold()
_DURING_IMPORT = 1_000_000  # objects; torch and its device create fewer
_owner: int | None = None
"""PID of the main process, if this is the main process or a fork of it."""


@dataclass(frozen=True)
class Options:
    """The options of a dry run; `SWITCH` contains them as JSON.

    Attributes
    ----------
    record : str
        File for the record.
    steps : int or None
        Maximum number of optimizer steps to run.
    whole : bool
        Do not end the run when the steps repeat.
    trace : str or None
        File for a trace of a step.
    values : list of (str, int, float)
        Stand-ins for reads in a line of a file.
    imbalance : float
        Tokens of this rank's experts relative to the mean.
    cell : dict or None
        Arguments of `cell.run`; None runs a script.
    rank : int
        The rank of this process. Other ranks are started when ranks exchange messages.
    connection : int
        File descriptor of the connection to ``hpu-magic dry-run``, which delivers messages.
    """

    record: str
    steps: int | None
    whole: bool
    trace: str | None
    values: list[tuple[str, int, float]]
    imbalance: float
    cell: dict[str, Any] | None
    rank: int
    connection: int

    @classmethod
    def from_environment(cls) -> Options:
        """Return the options of this process."""
        return cls(**json.loads(os.environ[SWITCH]))


def is_on() -> bool:
    """Return whether this process is part of a dry run."""
    return SWITCH in os.environ


def become_owner() -> Options:
    """Make this the only process that may use the card, and return the options of the dry run."""
    global _options, _owner
    _options, _owner = Options.from_environment(), os.getpid()
    os._exit = _leave  # type: ignore[assignment]
    # Garbage collection takes an eighth of the time that it takes to import torch.
    gc.set_threshold(_DURING_IMPORT)
    return _options


def _leave(status: int) -> None:
    """Replace `os._exit` for the script and the children that it forks."""
    if is_owner():
        leave(status, {"how": "exit"})
    _exit(status)


def leave(status: int, ended: dict[str, Any]) -> None:
    """Write the record of a run, including how it ended, and exit."""
    try:
        _finish(ended)
    except Exception as error:  # noqa: BLE001 - importing torch may fail in any way
        print(f"hpu-magic: {type(error).__name__}: {error}", file=sys.stderr)
    _end_children()
    if _command is not None:
        with contextlib.suppress(OSError):  # the command was interrupted
            _command.post("end", ended["how"])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        _exit(status)  # destroying models and datasets would only take time


def _end_children() -> None:
    """End the processes that the script started and that would wait for this one."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()


def is_owner() -> bool:
    """Return whether this is the main process of a dry run, which may use the card."""
    return _owner == os.getpid()


def check_owner() -> None:
    """Raise RuntimeError if this process may not use the card."""
    if not is_owner():
        raise RuntimeError(
            f"Only the main process of a dry run can use the card, not process {os.getpid()}, "
            "which it started: run the function in the main process, without a launcher, and pass "
            "--cards N to run it as the first of N ranks."
        )


def start(native: Any) -> None:
    """Start a dry run in the engine. The bridge calls this when it loads the engine."""
    import torch

    from hpu_magic.simulator.dry_run.record import Recorder
    from hpu_magic.simulator.dry_run.steps import Steps

    global _command, _record
    options = _options
    if options is None or not is_owner():
        return
    if not is_imported("torch"):  # otherwise, the script may have created modules
        gc.freeze()  # later collections do not traverse torch's objects
    gc.set_threshold(*_collections)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    native.start_dry_run([tuple(each) for each in options.values], options.imbalance, ranks)
    steps = Steps(options.steps, whole=options.whole, leave=lambda: leave(0, {"how": "stopped"}))
    recorder = Recorder(native, steps, options.values, options.trace, options.imbalance)
    recorder.install()
    if torch.distributed.is_available():
        from hpu_magic.simulator.dry_run import world
        from hpu_magic.simulator.dry_run.messages import Command, Messages

        world.install(options.rank)
        _command = Command(options.connection, steps.end)
        if options.rank:  # rank 0 may still need messages from this rank
            steps.may_end = lambda: _command.ask("has_ended", 0)
        messages = Messages(native, _command)
        messages.install()
        recorder.observe(messages.arrivals)
    _record = recorder.record


def _finish(ended: dict[str, Any]) -> None:
    if _record is None:
        import torch  # noqa: F401  # loads the engine, if the script did not
    assert _record is not None, "importing torch loads the engine"
    _write(_record(ended))


def refuse(why: str) -> None:
    """Write a record that says why the run cannot start."""
    _write({"refusal": why})


def _write(record: dict[str, Any]) -> None:
    assert _options is not None, "become_owner() was called"
    Path(_options.record).write_text(json.dumps(record))
