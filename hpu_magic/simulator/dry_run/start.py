"""Starts a dry run in this process when the engine is loaded, and writes its record."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SWITCH = "HPU_MAGIC_DRY_RUN"
_record: Callable[[dict[str, Any]], dict[str, Any]] | None = None


@dataclass(frozen=True)
class Options:
    """The options of a dry run; `SWITCH` contains them as JSON.

    Attributes
    ----------
    record : str
        File for the record.
    steps : int or None
        Number of optimizer steps to run; None stops when the steps repeat.
    whole : bool
        Run the script to its end.
    values : list of (str, int, float)
        Stand-ins for reads in a line of a file.
    """

    record: str
    steps: int | None
    whole: bool
    values: list[tuple[str, int, float]]

    @classmethod
    def from_environment(cls) -> Options:
        """Return the options of this process."""
        return cls(**json.loads(os.environ[SWITCH]))


def is_on() -> bool:
    """Return whether this process is part of a dry run."""
    return SWITCH in os.environ


def start(native: Any) -> None:
    """Switch the engine to dry runs. The bridge calls this when it loads the engine."""
    import torch

    from hpu_magic.simulator.dry_run.record import Recorder
    from hpu_magic.simulator.dry_run.steps import Steps

    global _record
    options = Options.from_environment()
    native.start_dry_run([tuple(each) for each in options.values])
    recorder = Recorder(native, Steps(options.steps, whole=options.whole))
    recorder.install()
    if torch.distributed.is_available():
        from hpu_magic.simulator.dry_run import world

        world.install()
    _record = recorder.record


def refuse(why: str) -> None:
    """Record why no script can run in this process."""
    Path(Options.from_environment().record).write_text(json.dumps({"refusal": why}))


def finish(ended: dict[str, Any]) -> None:
    """Write the record of a script; `ended` describes how it ended."""
    if _record is None and ended["how"] == "error":
        return  # the script cannot even import torch
    import torch  # noqa: F401  # loads the engine, if the script did not

    assert _record is not None, "importing torch loads the engine"
    Path(Options.from_environment().record).write_text(json.dumps(_record(ended)))
