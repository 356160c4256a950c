"""Run DeepSpeed's features on simulated cards and on its CPU accelerator, and print a table.

``python tools/deepspeed_table [--lazy] [--markdown] [WORD ...]`` runs all features, or those whose
name contains a word. Each feature runs in new processes. The numbers of all ranks, such as losses,
are compared. The exit code is 1 if a feature fails on the cards and not on the CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

from deepspeed_table.features import FEATURES, Feature, Phase  # noqa: E402 (needs the path above)

LONGEST = 300
"""Time limit of a phase in seconds."""
RANK = Path(__file__).with_name("rank.py")


@dataclass(frozen=True)
class Result:
    """Numbers of all ranks and phases, or the error of the first phase that failed."""

    numbers: tuple[float, ...] = ()
    error: str = ""


def main(arguments: list[str]) -> int:
    """Run the features, print a row for each, and return 1 if one fails only on the cards."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--lazy", action="store_true", help="use lazy mode")
    parser.add_argument("--markdown", action="store_true", help="print the table of the page")
    chosen = parser.parse_args(arguments)
    words = [word.lower() for word in chosen.words]
    features = [
        each for each in FEATURES if not words or any(w in each.name.lower() for w in words)
    ]
    if not features:
        print(f"No feature contains {' or '.join(chosen.words)}; use a part of a name.")
        return 2
    by_name = {each.name: each for each in FEATURES}
    references: dict[str, Result] = {}
    failed = 0
    if chosen.markdown:
        print("| feature | cards | result |\n|---|---|---|")
    for feature in features:
        started = time.monotonic()
        reference = by_name[feature.reference or feature.name]
        if not feature.alone and reference.name not in references:
            references[reference.name] = run(reference, "cpu", lazy=False)
        there = Result() if feature.alone else references[reference.name]
        here = run(feature, "hpu", chosen.lazy)
        good, sentence = judge(feature, here, there)
        failed += not good
        cards = max(each.ranks for each in feature.phases)
        if chosen.markdown:
            print(f"| {feature.name} | {cards} | {sentence.replace('|', '/')} |", flush=True)
        else:
            seconds = time.monotonic() - started
            print(
                f"{'ok  ' if good else 'FAIL'} {feature.name}: {sentence} ({seconds:.0f} s)",
                flush=True,
            )
    print(f"{len(features)} features, {failed} failed", file=sys.stderr)
    return int(failed > 0)


def judge(feature: Feature, here: Result, there: Result) -> tuple[bool, str]:
    """Return whether a row is good, and the sentence in its last column."""
    if here.error and feature.alone:
        return False, here.error
    if here.error and there.error:
        return True, f"fails on both; on the cards: {here.error}"
    if here.error:
        return False, here.error
    if feature.alone:
        return True, "works; the CPU accelerator does not have it"
    if there.error:
        return True, f"works; the CPU accelerator fails: {there.error}"
    difference = relative(here.numbers, there.numbers)
    compared = f"largest relative difference {difference:.1e} of {len(here.numbers)} numbers"
    return difference <= feature.tolerance, compared


def relative(numbers: tuple[float, ...], expected: tuple[float, ...]) -> float:
    """Return the largest difference relative to the expected number; infinity if counts differ."""
    if len(numbers) != len(expected) or not numbers or not all(map(math.isfinite, numbers)):
        return math.inf
    return max(abs(a - b) / max(abs(b), 1e-2) for a, b in zip(numbers, expected, strict=True))


def run(feature: Feature, accelerator: str, lazy: bool) -> Result:
    """Run the phases of a feature in new processes."""
    numbers: list[float] = []
    with tempfile.TemporaryDirectory(prefix="deepspeed_table_") as name:
        folder = Path(name)
        for phase in feature.phases:
            done, output = _start(phase, folder, _environment(accelerator, lazy, folder))
            written = sorted(folder.glob("numbers_*.json"))
            if done or not written:
                return Result(error=error_in(output))
            for file in written:
                numbers += json.loads(file.read_text())
                file.unlink()
    return Result(tuple(numbers))


def _environment(accelerator: str, lazy: bool, folder: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    common = {**os.environ, "PATH": path, "DS_ACCELERATOR": accelerator, "OMP_NUM_THREADS": "1"}
    common |= {"DEEPSPEED_TABLE_FOLDER": str(folder), "TOKENIZERS_PARALLELISM": "false"}
    common.pop("HPU_MAGIC_SIMULATOR", None)
    if accelerator == "cpu":
        return common
    cards = {"HPU_MAGIC_SIMULATOR": "1", "HPU_MAGIC_CARDS": "4", "PT_HPU_LAZY_MODE": str(int(lazy))}
    return {**common, **cards, "HPU_MAGIC_CARDS_DIR": str(folder / "cards")}


def _start(phase: Phase, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    count = str(phase.ranks)
    run_module = [sys.executable, "-m", "torch.distributed.run", "--master-addr", "127.0.0.1"]
    launchers = {
        "python": [sys.executable],
        "torchrun": [*run_module, "--master-port", port, "--nproc-per-node", count],
        "deepspeed": [
            "deepspeed",
            "--num_gpus",
            count,
            "--master_addr",
            "127.0.0.1",
            "--master_port",
            port,
        ],
    }
    program = [RANK, phase.function, folder, json.dumps(phase.settings), json.dumps(phase.options)]
    # A session of its own, so that no process outlives a phase that takes too long.
    with subprocess.Popen(
        [*launchers[phase.launcher], *map(str, program)],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as started:
        try:
            output, _ = started.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            output, _ = started.communicate()
            output += f"\nTimeoutError: did not end within {LONGEST} s\n"
    if log := os.environ.get("DEEPSPEED_TABLE_LOG"):
        with open(log, "a") as file:
            file.write(f"==== {phase} {environment['DS_ACCELERATOR']}\n{output}\n")
    return started.returncode, output


def error_in(output: str) -> str:
    """Return the first exception in an output, without prefixes of launchers."""
    lines = [re.sub(r"^\[(rank)?\d+\]:\s?", "", line) for line in output.splitlines()]
    found = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception|Interrupt)\b", line)]
    last = next((line for line in reversed(lines) if line.strip()), "no output")
    return (found or [last])[0][:240]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
