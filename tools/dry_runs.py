"""Compare dry runs with real runs of the same programs on the simulator.

Usage: python tools/dry_runs.py [--packages] [--lazy] [--cards N] [PROGRAM...]

Prints the peak memory, compiled graphs, graph breaks and host reads of both runs, and fails if
they differ. Without a program, the script compares all programs of the tests or, with --packages,
those of `packaged_programs.py`, in both modes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hpu_magic.dry_runs.process import Processes
from hpu_magic.dry_runs.request import Request
from hpu_magic.dry_runs.run import dry_run
from tools import packaged_programs

_REAL = """\
import json, os, runpy, sys
record, steps = sys.argv[1], int(sys.argv[2])
sys.argv[:] = sys.argv[3:]
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
left = [steps]
def count(*_):
    left[0] -= 1
    if not left[0]:
        sys.exit()
register_optimizer_step_post_hook(count)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    from hpu_magic.simulator import engine
    counters = engine.load().counters()
    breaks = {}
    if "torch._dynamo.utils" in sys.modules:
        breaks = sys.modules["torch._dynamo.utils"].counters["graph_break"]
    figures = [
        engine.load().memory_stats()["MaxInUse"],
        counters["graph_compilation"]["count"],
        sum(breaks.values()),
        counters["host_synchronization"]["count"],
    ]
    with open(record + os.environ.get("RANK", "0"), "w") as file:
        json.dump(figures, file)
"""


TOOLS = Path(__file__).resolve().parent
ONE_MODE = {"compiled": "eager", "graph": "lazy"}
"""Programs that need a mode."""
FOUR_CARDS = {"hybrid_sharding", "pipeline", "deepspeed_pipeline"}
"""Programs of ranks that need four cards; the others use two."""
DIFFERENT = {
    "pipeline": "send: real messages use memory until they have been received",
    "experts": "topk: how many tokens an expert gets depends on the weights",
    "vit_pytorch/na_vit_nested_tensor.py": "topk: the number of tokens is computed in float32",
}
"""Programs whose figures differ, and the operator that causes it."""


@dataclass(frozen=True)
class Program:
    """A program, and how to run it; `packaged_programs.Packaged` describes programs of packages."""

    name: str
    path: str
    arguments: tuple[str, ...] = ()
    lazy: bool = False
    cards: int = 1
    steps: int = 0
    cuda: bool = False

    def variables(self) -> dict[str, str]:
        """Return the environment variables of the program's process."""
        migration = {"PT_HPU_GPU_MIGRATION": "1"} if self.cuda else {}
        return {"PT_HPU_LAZY_MODE": str(int(self.lazy)), **migration}


@dataclass(frozen=True)
class Figures:
    """Figures of one rank in one run; memory in bytes."""

    peak: int
    graphs: int
    graph_breaks: int
    host_reads: int


@dataclass(frozen=True)
class Comparison:
    """The figures of both runs of a program, by rank; the dry run determines the ranks."""

    program: str
    real: dict[int, Figures]
    dry: dict[int, Figures]


def compared(program: Program) -> Comparison:
    """Run a program on the simulator and in a dry run.

    Raises
    ------
    RuntimeError
        One of the runs failed.
    """
    real = _real_run(program)
    before = dict(os.environ)
    os.environ.update(program.variables())
    request = Request(
        program.path,
        program.arguments,
        whole=True,
        cards=program.cards,
        steps=program.steps or None,
    )
    try:
        result = dry_run(request, output=subprocess.DEVNULL)
    finally:
        os.environ.clear()
        os.environ.update(before)
    if result.status:
        raise RuntimeError(f"{program.name} failed in the dry run: {result.error}")
    dry = {
        each.rank: Figures(each.peak, each.graphs, each.graph_breaks, each.host_reads)
        for each in result.ranks
    }
    return Comparison(program.name, {rank: real[rank] for rank in dry}, dry)


def _real_run(program: Program) -> list[Figures]:
    """Run a program on simulated cards that compute, and return the figures of each rank."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        wrapper, record = os.path.join(folder, "real.py"), os.path.join(folder, "figures.json")
        with open(wrapper, "w") as file:
            file.write(_REAL)
        command = [sys.executable, wrapper, record, str(program.steps), program.path]
        changed = {**program.variables(), "HPU_MAGIC_CARDS_DIR": folder, "HPU_MAGIC_SIMULATOR": "1"}
        ranks = [
            Processes.create(
                [*command, *program.arguments],
                env={**os.environ, **changed, **variables},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            for variables in variables_of_ranks(program.cards)
        ]
        if not _succeed(ranks):
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no output"])[-1]
            raise RuntimeError(f"{program.name} failed on the simulator: {last}")
        records = [Path(f"{record}{rank}").read_text() for rank in range(program.cards)]
        return [Figures(*json.loads(each)) for each in records]


def variables_of_ranks(cards: int) -> list[dict[str, str]]:
    """Return the variables that torchrun sets for each rank; one card needs none."""
    if cards == 1:
        return [{}]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": str(cards), "LOCAL_WORLD_SIZE": str(cards)}
    world |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [{**world, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(cards)]


def _succeed(processes: list[subprocess.Popen[bytes]]) -> bool:
    """Wait until all processes have ended; end them all if one of them fails."""
    try:
        while None in (statuses := [each.poll() for each in processes]) and not any(statuses):
            time.sleep(0.02)
        return not any(statuses)
    finally:
        for each in processes:
            each.kill()
            each.wait()


def all_programs() -> list[Program]:
    """Return the programs of the tests."""
    folder = TOOLS.parent / "tests" / "dry_runs"
    programs = [
        Program(path.stem, str(path), lazy=mode == "lazy")
        for path in sorted(folder.glob("*programs/*.py"))
        for mode in ("eager", "lazy")
        if ONE_MODE.get(path.stem, mode) == mode
    ]
    of_ranks = sorted((folder / "programs_of_ranks").glob("*.py"))
    return [*programs, *map(program_of_ranks, of_ranks)]


def program_of_ranks(path: Path) -> Program:
    """Return a program that runs on several cards."""
    return Program(path.stem, str(path), cards=4 if path.stem in FOUR_CARDS else 2)


def programs_of_packages(inputs: Path) -> list[Program]:
    """Return the programs of packages; some of them read models and texts from a folder."""
    return [
        Program(
            each.name,
            str(TOOLS / "start_program.py"),
            (each.device, each.module, *(word.format(inputs=inputs) for word in each.arguments)),
            lazy=lazy,
            cards=each.cards,
            steps=each.steps,
            cuda=each.cuda,
        )
        for each in packaged_programs.PROGRAMS
        for lazy in ((False, True) if each.cards == 1 else (False,))
    ]


def main() -> int:
    """Compare the programs of the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", action="store_true", help="compare programs of packages")
    parser.add_argument("--lazy", action="store_true", help="run the programs in lazy mode")
    parser.add_argument("--cards", type=int, default=1, help="number of ranks")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="path, or part of a name")
    options = parser.parse_args()
    if options.packages:
        return _compare_packages(options.programs)
    chosen = [
        Program(Path(each).stem, each, lazy=options.lazy, cards=options.cards)
        for each in options.programs
    ]
    return _compare(chosen or all_programs())


def _compare_packages(parts: list[str]) -> int:
    """Compare the packages' programs whose names contain one of the parts, or all programs."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # some programs write files
        inputs = Path(folder) / "inputs"
        writer = [str(TOOLS / "start_program.py"), "cpu", "program_inputs", str(inputs)]
        subprocess.run([sys.executable, *writer], check=True)
        programs = programs_of_packages(inputs)
        found = [each for each in programs if any(part in each.name for part in parts or [""])]
        return _compare(found)


def _compare(programs: list[Program]) -> int:
    return int(sum(not _is_as_expected(program) for program in programs) > 0)


def compared_often(program: Program) -> Comparison:
    """Return the first equal comparison of three, or the last one.

    Threads of a real exchange may free memory late, so the peak of several cards varies.
    """
    for _ in range(3 if program.cards > 1 else 1):
        comparison = compared(program)
        if comparison.real == comparison.dry:
            break
    return comparison


def _is_as_expected(program: Program) -> bool:
    """Run a program twice, print the figures, and return whether they are as expected."""
    name = f"{program.name}, {'lazy' if program.lazy else 'eager'}, {program.cards} cards"
    try:
        comparison = compared_often(program)
    except RuntimeError as error:
        print(f"FAILED     {name}: {error}", flush=True)
        return False
    equal = comparison.real == comparison.dry
    reason = DIFFERENT.get(program.name, "")
    print(f"{'equal' if equal else 'DIFFERENT'}  {name}: {comparison.real} {reason}", flush=True)
    if not equal:
        print(f"           dry run: {comparison.dry}", flush=True)
    return equal or bool(reason)


if __name__ == "__main__":
    sys.exit(main())
