"""Run vLLM's features on simulated cards, and print a table.

``python tools/serving_table [--markdown] [WORD ...]`` runs all features, or those whose name
contains a word, with the interpreter that has vLLM and its Gaudi plugin. Each feature runs in a new
process. The exit code is 1 if a feature neither works nor fails with its known error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

from serving_table.features import FEATURES, Feature  # noqa: E402 (needs the path above)

LONGEST = 600
"""Time limit of a process in seconds."""
HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Run the features, print a row for each, and return 1 if one fails unexpectedly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--markdown", action="store_true", help="print the table of the page")
    chosen = parser.parse_args(arguments)
    words = [word.lower() for word in chosen.words]
    features = [
        each for each in FEATURES if not words or any(w in each.name.lower() for w in words)
    ]
    if not features:
        print(f"No feature contains {' or '.join(chosen.words)}; use a part of a name.")
        return 2
    failed = 0
    if chosen.markdown:
        print("| feature | options | result |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="serving_table_") as folder:
        for feature in features:
            started = time.monotonic()
            good, sentence = run(feature, Path(folder))
            good = good or (bool(feature.error) and feature.error in sentence)
            failed += not good
            if chosen.markdown:
                print(f"| {feature.name} | {feature.arguments()} | {sentence} |", flush=True)
            else:
                seconds = time.monotonic() - started
                state = "ok  " if good else "FAIL"
                print(f"{state} {feature.name}: {sentence} ({seconds:.0f} s)", flush=True)
    print(f"{len(features)} features, {failed} failed", file=sys.stderr)
    return int(failed > 0)


def run(feature: Feature, folder: Path) -> tuple[bool, str]:
    """Return whether a feature works, and a sentence: its result or its first error."""
    model = folder / feature.model
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    environment.pop("HPU_MAGIC_SIMULATOR", None)
    if not (model / "expected.json").exists():
        _start([HERE / "models.py", feature.model, model], environment)
    environment |= {"HPU_MAGIC_SIMULATOR": "1", "HPU_MAGIC_CARDS_DIR": str(folder / "cards")}
    environment |= {"PT_HPU_LAZY_MODE": "0", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    request = json.dumps({"check": feature.check, "options": feature.all_options()})
    output = _start([HERE / "row.py", model, request], environment)
    for line in output.splitlines():
        if line.startswith("RESULT "):
            good, sentence = json.loads(line.removeprefix("RESULT "))
            return good, sentence
    return False, error_in(output)


def _start(program: list[object], environment: dict[str, str]) -> str:
    # In a new session, all processes of a feature that takes too long can be ended together.
    with subprocess.Popen(
        [sys.executable, *map(str, program)],
        env=environment,
        cwd=HERE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as started:
        try:
            return started.communicate(timeout=LONGEST)[0]
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            return f"TimeoutError: did not end within {LONGEST} s"


def error_in(output: str) -> str:
    """Return the first exception in an output, without prefixes of processes."""
    lines = [re.sub(r"^(\(\w+ pid=\d+\) )?(\[rank\d+\]: )?", "", x) for x in output.splitlines()]
    found = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    last = next((line for line in reversed(lines) if line.strip()), "no output")
    return (found or [last])[0][:240]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
