"""Start a script in its own process, on simulated cards that compute nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpu_magic.dry_runs.report import DryRun
from hpu_magic.errors import HPUError

_PER_NODE = 8  # cards
_CHILD = "hpu_magic.simulator.dry_run"
_VALUE = re.compile(r"(?P<file>.+):(?P<line>[0-9]+)=(?P<value>[^=]+)")


@dataclass(frozen=True)
class Request:
    """The script to run, and the options of the dry run.

    Attributes
    ----------
    script : str
        Path of the script.
    arguments : sequence of str
        Arguments of the script.
    card : str or None
        ``"gaudi"``, ``"gaudi2"`` or ``"gaudi3"``; None means ``HPU_MAGIC_CARD``.
    cards : int
        Number of ranks, one per card.
    nodes : int or None
        Number of machines; None means as few as possible, with eight cards each.
    steps : int or None
        Number of optimizer steps; None stops when the steps repeat.
    whole : bool
        Run the script to its end.
    time : bool
        Estimate the time of a step with the card's clock.
    values : sequence of str
        Stand-ins for values that a line reads, each as ``FILE:LINE=VALUE``.
    """

    script: str
    arguments: Sequence[str] = ()
    card: str | None = None
    cards: int = 1
    nodes: int | None = None
    steps: int | None = None
    whole: bool = False
    time: bool = False
    values: Sequence[str] = ()


def dry_run(request: Request, *, output: Any = None) -> DryRun:
    """Run a script without computing anything, and return what it did.

    Parameters
    ----------
    request
        The script and the options.
    output
        File for the script's standard output; None means that of this process.

    Raises
    ------
    HPUError
        The script does not exist, an option or environment variable is invalid, or the process
        ended without a result.
    """
    _check(request)
    with tempfile.TemporaryDirectory(prefix="hpu_magic_dry_run_") as folder:
        record = Path(folder) / "record.json"
        options = {
            "record": str(record),
            "steps": request.steps,
            "whole": request.whole,
            "values": [_value(each) for each in request.values],
        }
        command = [sys.executable, "-m", _CHILD, request.script, *request.arguments]
        variables = _environment(request, folder) | {"HPU_MAGIC_DRY_RUN": json.dumps(options)}
        status = subprocess.call(command, env=variables, stdout=output)
        if not record.exists():
            raise HPUError(_unfinished(request.script, status))
        found = json.loads(record.read_text())
        if "refusal" in found:
            raise HPUError(found["refusal"])
        return DryRun.from_record(request.script, status, request.cards, found)


def _check(request: Request) -> None:
    if not Path(request.script).is_file():
        raise HPUError(f"{request.script!r} is not a file; pass the path of a Python script.")
    _nodes(request)
    if request.steps is not None and request.steps < 1:
        raise HPUError(f"The number of steps must be at least 1, got {request.steps}.")
    if request.time and request.cards > 1:
        raise HPUError("--time supports only one card; omit --cards.")
    if request.steps is not None and request.whole:
        raise HPUError("--steps and --whole exclude each other; pass one of them.")


def _nodes(request: Request) -> int:
    """Return the number of machines.

    Raises
    ------
    HPUError
        The cards cannot be divided among the machines.
    """
    cards = request.cards
    if cards < 1:
        raise HPUError(f"The number of cards must be at least 1, got {cards}.")
    nodes = -(-cards // _PER_NODE) if request.nodes is None else request.nodes
    if nodes < 1 or cards % nodes or cards // nodes > _PER_NODE:
        raise HPUError(
            f"{cards} cards cannot be divided among {nodes} machines with at most {_PER_NODE} "
            "cards each; choose other values of --cards and --nodes."
        )
    return nodes


def _value(text: str) -> tuple[str, int, float]:
    match = _VALUE.fullmatch(text.strip())
    try:
        if match:
            return match["file"], int(match["line"]), float(match["value"])
    except ValueError:
        pass
    raise HPUError(f"{text!r} is not a stand-in: use FILE:LINE=NUMBER, such as train.py:42=0.5.")


def _environment(request: Request, folder: str) -> dict[str, str]:
    """Return the variables of the process, whose cards are its own."""
    variables = {**os.environ, "HPU_MAGIC_CARDS_DIR": str(Path(folder) / "cards")}
    if request.card is not None:
        variables["HPU_MAGIC_CARD"] = request.card
    if request.time:
        host = variables.get("HPU_MAGIC_CARD_TIME", "0")
        variables["HPU_MAGIC_CARD_TIME"] = "1" if host in ("", "0") else host
    if request.cards > 1:
        variables |= _world(request.cards, _nodes(request))
    return variables


def _world(cards: int, nodes: int) -> dict[str, str]:
    """Return the variables that torchrun sets for the first rank."""
    per_node = str(cards // nodes)
    return {
        "HPU_MAGIC_CARDS": per_node,
        "RANK": "0",
        "LOCAL_RANK": "0",
        "GROUP_RANK": "0",
        "ROLE_RANK": "0",
        "WORLD_SIZE": str(cards),
        "LOCAL_WORLD_SIZE": per_node,
        "GROUP_WORLD_SIZE": str(nodes),
        "ROLE_WORLD_SIZE": str(cards),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "dry-run",
    }


def _unfinished(script: str, status: int) -> str:
    if status == -9:
        return (
            f"{script} was ended by the operating system, probably because this machine is out of "
            "memory: a dry run needs memory for the data and for models that are on the CPU."
        )
    return f"{script} ended with status {status} before the dry run had a result."
