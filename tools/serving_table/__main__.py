"""Run vLLM's features on simulated cards, compare them, and update the page's tables.

``python tools/serving_table [WORD ...]`` runs all rows, or those whose name contains a word, with
the interpreter that has vLLM and its Gaudi plugin. Each row runs in new processes. The exit code
is 1 if a cell neither works nor fails with its known error.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

from serving_table.features import FEATURES, MODELS, Feature, model_features  # noqa: E402
from serving_table.page import update  # noqa: E402

LONGEST = 1800
"""Time limit of a process in seconds."""
HERE = Path(__file__).parent
RESULT = "RESULT "
_MAKING = threading.Lock()  # several rows have the same model


def main(arguments: list[str]) -> int:
    """Run the rows, print and write each, and return 1 if one fails unexpectedly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--workers", type=int, default=1, help="number of rows at the same time")
    chosen = parser.parse_args(arguments)
    rows = list(_rows([word.lower() for word in chosen.words]))
    if not rows:
        print(f"No row contains {' or '.join(chosen.words)}; use part of a name.")
        return 2
    failed = 0
    with (
        tempfile.TemporaryDirectory(prefix="serving_table_") as folder,
        ThreadPoolExecutor(chosen.workers) as workers,
    ):
        for good, cells, seconds in workers.map(partial(_run_row, folder=Path(folder)), rows):
            failed += not good
            update(cells)
            print(f"{'ok  ' if good else 'FAIL'} {' | '.join(cells)} ({seconds:.0f} s)", flush=True)
    print(f"{len(rows)} rows, {failed} failed", file=sys.stderr)
    return int(failed > 0)


def _rows(words: list[str]) -> Iterator[list[Feature]]:
    for features in [[each] for each in FEATURES] + [model_features(name) for name in MODELS]:
        if not words or any(word in features[0].name.lower() for word in words):
            yield features


def _run_row(features: list[Feature], folder: Path) -> tuple[bool, list[str], float]:
    """Return whether a row is good, its cells, and the time in seconds."""
    started = time.monotonic()
    results: list[tuple[bool, str]] = []
    for (script, _), group in itertools.groupby(features, key=lambda each: each.process):
        results += run(script, list(group), folder)
    name, options = features[0].name, [features[0].arguments()]
    if len(features) > 1:  # a row of the models
        name, options = name.rpartition(",")[0], []
    cells = [name, *options, *(sentence for _, sentence in results)]
    return all(good for good, _ in results), cells, time.monotonic() - started


def run(script: str, features: list[Feature], folder: Path) -> list[tuple[bool, str]]:
    """Return whether each feature works or fails as expected, and a sentence for the table."""
    model = folder / features[0].model
    cards = tempfile.mkdtemp(dir=folder, prefix="cards_")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SKIP_WARMUP": "true"}
    environment.pop("HPU_MAGIC_SIMULATOR", None)
    with _MAKING:
        if not (model / "expected.json").exists():
            output = _start([HERE / "models.py", features[0].model, model], environment)
            if not (model / "expected.json").exists():
                return [(False, f"`{error_in(output)}`")] * len(features)
    environment |= {"HPU_MAGIC_SIMULATOR": "1", "HPU_MAGIC_CARDS_DIR": cards}
    environment |= {"PT_HPU_LAZY_MODE": "0", **features[0].variables}
    results: list[tuple[bool, str]] = []
    while waiting := features[len(results) :]:
        requests = json.dumps([each.request() for each in waiting])
        output = _start([HERE / script, model, requests], environment)
        results += judged(waiting, output)
    return results


def judged(features: list[Feature], output: str) -> list[tuple[bool, str]]:
    """Return the results of all features up to the first one that ended the process."""
    lines = output.splitlines()
    results = [line for line in lines if line.startswith(RESULT)]
    errors = [line for line in lines if not line.startswith(RESULT)]
    return list(map(judge, features, [*results, "\n".join(errors)]))


def judge(feature: Feature, output: str) -> tuple[bool, str]:
    """Return whether a result or an error is as expected, and a sentence for the table."""
    if output.startswith(RESULT):
        good, sentence = json.loads(output.removeprefix(RESULT))
        return good and not feature.error, sentence
    error = error_in(output)
    return bool(feature.error) and feature.error in error, f"`{error}`"


def _start(program: list[object], environment: dict[str, str]) -> str:
    # A new session, so that a feature that takes too long can be ended with all its processes.
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
    """Return the first exception in an output, without process prefixes."""
    lines = [re.sub(r"^(\(\w+ pid=\d+\) )?(\[rank\d+\]: )?", "", x) for x in output.splitlines()]
    found = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    last = next((line for line in reversed(lines) if line.strip()), "no output")
    return (found or [last])[0][:240]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
