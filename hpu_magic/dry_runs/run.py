"""Run a script or a cell in its own process, on simulated cards that compute nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hpu_magic.dry_runs.process import Processes
from hpu_magic.dry_runs.ranks import Ranks
from hpu_magic.dry_runs.report import DryRun
from hpu_magic.dry_runs.request import Request
from hpu_magic.errors import HPUError
from hpu_magic.parallel import transfer

_CHILD = "hpu_magic.simulator.dry_run"


class UnfinishedError(HPUError):
    """The process ended without a result.

    Attributes
    ----------
    status : int
        Exit status of the process; 128 plus the signal's number if a signal ended it.
    """

    def __init__(self, name: str, status: int) -> None:
        self.status = status if status > 0 else 128 - status if status else 1
        how = f"ended with status {status} before the dry run had a result."
        if status == -9:
            how = (
                "was ended by the operating system, probably because this machine is out of "
                "memory: a dry run needs memory for the data and for models that are on the CPU."
            )
        super().__init__(f"{name} {how}")


class DryRunInterrupt(KeyboardInterrupt):
    """An interrupt that ended a dry run.

    Attributes
    ----------
    result : DryRun
        The result of the run until the interrupt.
    """

    def __init__(self, result: DryRun) -> None:
        self.result = result
        super().__init__()


def dry_run(request: Request, *, output: Any = None) -> DryRun:
    """Run a script or a cell without computing anything, and return the result.

    Parameters
    ----------
    request
        The script or cell, and the options.
    output
        File for the standard output of the process; None means the output of this process.

    Raises
    ------
    HPUError
        The script does not exist, an option or environment variable is invalid, a variable cannot
        be copied, or the process ended without a result.
    DryRunInterrupt
        The run was interrupted, and ended in time.
    """
    request.check()
    with tempfile.TemporaryDirectory(prefix="hpu_magic_dry_run_") as folder:
        statuses = _run_ranks(request, Path(folder), output)
        records = {}
        for rank, status in statuses.items():
            if not (record := _record(Path(folder), rank)).exists():
                name = f"rank {rank} of {request.name}" if rank else request.name
                raise UnfinishedError(name, status)
            records[rank] = json.loads(record.read_text()) | {"status": status}
    for found in records.values():
        if "refusal" in found:
            raise HPUError(found["refusal"])
    result = DryRun.from_records(request.name, request.cards, records)
    if result.was_interrupted:
        raise DryRunInterrupt(result)
    return result


def _run_ranks(request: Request, folder: Path, output: Any) -> dict[int, int]:
    """Run rank 0, and the ranks with which it exchanges messages; return their exit statuses."""
    options = {
        "steps": request.steps,
        "whole": request.whole,
        "values": request.supplied(),
        "imbalance": request.imbalance,
        "cell": _stored_cell(request, folder),
    }
    arguments = [] if request.script is None else [request.script, *request.arguments]
    command = [sys.executable, "-m", _CHILD, *arguments]

    def start(rank: int, connection: int) -> subprocess.Popen[bytes]:
        own = {"record": str(_record(folder, rank)), "rank": rank, "connection": connection}
        traces = request.trace is not None and rank == 0
        own["trace"] = str(Path(request.trace or "").absolute()) if traces else None
        variables = request.environment(str(folder), rank)
        variables["HPU_MAGIC_DRY_RUN"] = json.dumps(options | own)
        return processes.start(command, variables, [connection])

    with Processes(output) as processes:
        ranks = Ranks(start)
        try:
            ranks.run()
            processes.show_output(ranks.have_ended)
            return ranks.join()
        except KeyboardInterrupt:
            if not processes.end_by_interrupt():
                raise
            return ranks.join()


def _record(folder: Path, rank: int) -> Path:
    return folder / f"record{rank}.json"


def _stored_cell(request: Request, folder: Path) -> dict[str, Any] | None:
    """Store the code and variables of a cell for the process, and return their paths."""
    if request.code is None:
        return None
    code, variables = folder / "cell", folder / "variables"
    code.write_text(request.code)
    if request.push:
        variables.write_bytes(transfer.pack(request.push, "hpu"))
    return {
        "code": str(code),
        "variables": str(variables) if request.push else None,
        "path": sys.path,
    }
