"""Run the phases of features in new processes, and return their numbers or their error."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from deepspeed_table.features import Feature, Phase

PROJECT = Path(__file__).parents[2]
sys.path.append(str(PROJECT / "tests"))

from ranks import Failed, Named, Ranks, Server  # noqa: E402 (needs the path above)

LONGEST = 1200
"""Time limit of a phase in seconds, including the compilation of DeepSpeed's operators."""
RANK = Path(__file__).with_name("rank.py")
COMPILED = PROJECT / "build" / "deepspeed_operators"


@dataclass(frozen=True)
class Result:
    """The numbers from all ranks and phases, or the error of the first phase that failed."""

    numbers: tuple[float, ...] = ()
    error: str = ""


class Processes:
    """Starts other programs, and ranks as forks of a process that has imported torch."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="deepspeed_table_")
        os.environ["HPU_MAGIC_CARDS_DIR"] = str(Path(self._folder.name, "cards"))
        # Compiled operators are kept. An interrupted compilation has left its lock behind.
        COMPILED.mkdir(parents=True, exist_ok=True)
        for lock in COMPILED.glob("*/lock"):
            shutil.rmtree(lock.parent, ignore_errors=True)
        self._servers: dict[tuple[str, bool, str], Server] = {}

    def close(self) -> None:
        """End the forked process, and delete the files of all features."""
        for server in self._servers.values():
            server.close()
        self._folder.cleanup()

    def run(self, feature: Feature, accelerator: str) -> Result:
        """Run the phases of a feature."""
        numbers: list[float] = []
        with tempfile.TemporaryDirectory(dir=self._folder.name) as name:
            folder = Path(name)
            for phase in feature.phases:
                lazy = feature.lazy and accelerator == "hpu"
                environment = _environment(accelerator, lazy, feature.card, folder)
                try:
                    if phase.launcher == "ranks":
                        key = (accelerator, lazy, feature.card)
                        server = self._server(key, environment)
                        numbers += _ranks(server, phase, folder, environment)
                    else:
                        numbers += _program(phase, folder, environment)
                except (Failed, RuntimeError) as error:
                    return Result(error=error_in(str(error)))
        return Result(tuple(numbers))

    def _server(self, key: tuple[str, bool, str], environment: dict[str, str]) -> Server:
        """Return the server whose ranks have imported DeepSpeed in an environment."""
        if key not in self._servers:
            path = os.pathsep.join([str(PROJECT / "tools"), os.environ.get("PYTHONPATH", "")])
            variables = {**environment, "PYTHONPATH": path}
            self._servers[key] = Server("deepspeed_table.imported", **variables)
        return self._servers[key]


def _ranks(server: Server, phase: Phase, folder: Path, environment: dict[str, str]) -> list[float]:
    ranks: Ranks = server.start(phase.ranks, **environment)
    children: list[psutil.Process] = []
    try:
        options = json.dumps(phase.settings), json.dumps(phase.options)
        ranks.ask(Named(str(RANK), "run_quietly"), phase.function, str(folder), *options)
        return [number for each in ranks.answers(LONGEST) for number in each]
    finally:
        for pid in ranks.pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                children += psutil.Process(pid).children(recursive=True)
        ranks.close()
        _kill(children)


def _environment(accelerator: str, lazy: bool, card: str, folder: Path) -> dict[str, str]:
    """Return the variables that differ from those of this process."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cards = {
        "HPU_MAGIC_SIMULATOR": "1",
        "HPU_MAGIC_CARDS": "4",
        "HPU_MAGIC_CARD": card,
        "PT_HPU_LAZY_MODE": str(int(lazy)),
    }
    return {
        "PATH": path,
        "DS_ACCELERATOR": accelerator,
        "OMP_NUM_THREADS": "1",
        "DEEPSPEED_TABLE_FOLDER": str(folder),
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_EXTENSIONS_DIR": str(COMPILED),
        **({"HPU_MAGIC_SIMULATOR": "0"} if accelerator == "cpu" else cards),
    }


def _program(phase: Phase, folder: Path, environment: dict[str, str]) -> list[float]:
    """Run ``rank.py`` with Python or with DeepSpeed's launcher."""
    command = [sys.executable]
    if phase.launcher == "deepspeed":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        command = ["deepspeed", "--num_gpus", str(phase.ranks), "--master_port", port]
        command += ["--master_addr", "127.0.0.1"]
    options = [json.dumps(phase.settings), json.dumps(phase.options)]
    with subprocess.Popen(
        [*command, str(RANK), phase.function, str(folder), *options],
        env={**os.environ, **environment, "HPU_MAGIC_CARDS_DIR": str(folder / "cards")},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as started:
        try:
            output, _ = started.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            _kill([*psutil.Process(started.pid).children(recursive=True), started])
            output = started.communicate()[0] + f"\nTimeoutError: not ended after {LONGEST} s"
    if started.returncode:
        raise RuntimeError(output)
    files = sorted(folder.glob("numbers_*.json"))
    return [number for file in files for number in json.loads(file.read_text())]


def _kill(processes: list[psutil.Process]) -> None:
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            each.send_signal(signal.SIGKILL)


def error_in(output: str) -> str:
    """Return the last exception of the first traceback in an output."""
    lines = [re.sub(r"^\[(rank)?\d+\]:\s?", "", line) for line in output.splitlines()]
    found = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception|Interrupt)\b", line)]
    last = next((line for line in reversed(lines) if line.strip()), "no output")
    return (found or [last])[-1][:240]
