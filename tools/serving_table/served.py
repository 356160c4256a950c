"""Run a server's row: ``python served.py FOLDER FEATURES`` prints a JSON line.

FOLDER contains a model of ``models.py``. The server starts twice. After each stop, no process may
be left, and no card may be held.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

sys.path[0] = str(Path(__file__).parents[1])

from serving_table.features import command_line  # noqa: E402 (needs the path above)

REQUESTS = 200
GIB = 1 << 30
VLLM = [sys.executable, "-m", "vllm.entrypoints.cli.main"]
CARDS = "HPU_MAGIC_CARDS_DIR"  # identifies the processes of this row


def run(feature: dict[str, Any], folder: Path) -> tuple[bool, str]:
    """Serve the model twice; return whether it worked as expected, and a sentence for the table."""
    start = _from_python if feature["check"] == "server" else _in_a_terminal
    options = dict(feature["options"])
    cards = options.pop("tensor_parallel_size", 1)
    arguments = [word for each in command_line(options) for word in each.split(" ", 1)]
    rows = json.loads((folder / "expected.json").read_text())
    with start(folder, arguments, cards) as url:
        sentences = [_benchmark(url, folder)]
        memory = _memory()
        held = len(_holders())
    left = _left()
    with start(folder, arguments, cards) as url:
        answers = _answers(url, folder, rows)
    left += _left()
    sentences += [f"after a restart, {answers} of {len(rows)} answers equal transformers'"]
    sentences += ["; ".join(left) or "after each stop, no process is left and no card is held"]
    sentences += [f"{memory / GIB:.1f} GiB of host memory"]
    good = sentences[0].startswith(f"{REQUESTS} of") and answers == len(rows)
    return good and held == cards and not left, "; ".join(sentences)


@contextmanager
def _from_python(folder: Path, arguments: list[str], cards: int) -> Iterator[str]:
    import hpu_magic

    report = hpu_magic.serve(str(folder), *arguments, cards=cards, port=0, timeout=900)
    try:
        yield report.url
    finally:
        hpu_magic.serve("off")


@contextmanager
def _in_a_terminal(folder: Path, arguments: list[str], cards: int) -> Iterator[str]:
    """Serve with ``vllm serve`` on a machine with only the necessary cards, and interrupt it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(
        [*VLLM, "serve", str(folder), *address, *arguments],
        env={**os.environ, "HPU_MAGIC_CARDS": str(cards)},
        stdin=subprocess.DEVNULL,
    )
    try:
        _wait_until(lambda: server.poll() is not None or _healthy(port), 900)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(120)


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _benchmark(url: str, folder: Path) -> str:
    """Send requests with vLLM's own client, and return how many succeeded."""
    address = ["--base-url", url.removesuffix("/v1"), "--model", str(folder)]
    lengths = ["--random-input-len", "32", "--random-output-len", "12"]
    requests = ["--num-prompts", str(REQUESTS), "--max-concurrency", "8", "--ignore-eos"]
    done = subprocess.run(
        [*VLLM, "bench", "serve", *address, "--dataset-name", "random", *lengths, *requests],
        env={**os.environ, "HPU_MAGIC_CARDS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if not (found := re.search(r"Successful requests: +(\d+)", done.stdout)):
        lines = (done.stdout + done.stderr).strip().splitlines()
        return f"the client failed: {lines[-1] if lines else 'no output'}"
    return f"{found[1]} of {REQUESTS} requests of vLLM's client succeeded"


def _answers(url: str, folder: Path, rows: list[dict[str, Any]]) -> int:
    """Return for how many prompts the server returns the expected tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    same = 0
    for row in rows:
        body = {"model": str(folder), "prompt": row["prompt"], "temperature": 0}
        body |= {"max_tokens": len(row["tokens"]), "ignore_eos": True}
        body |= {"skip_special_tokens": False}
        request = urllib.request.Request(
            f"{url}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = json.load(answer)["choices"][0]["text"]
        same += text == tokenizer.decode(row["tokens"])
    return same


def _processes() -> list[psutil.Process]:
    """Return all processes of this row except this one."""
    found = []
    for process in psutil.process_iter():
        try:
            of_row = process.environ().get(CARDS) == os.environ[CARDS]
        except psutil.Error:
            continue
        if of_row and process.pid != os.getpid():
            found.append(process)
    return found


def _memory() -> int:
    """Return the memory of the server's processes; the largest shared part is counted once."""
    each = [process.memory_full_info() for process in _processes()]
    return sum(own.uss for own in each) + max(own.rss - own.uss for own in each)


def _holders() -> list[int]:
    from hpu_magic import monitor

    return [holder.pid for card in monitor.snapshot().cards for holder in card.holders]


def _left() -> list[str]:
    """Return sentences about processes that still run, and about cards that are held."""
    _wait_until(lambda: not _processes(), 10)
    table = [sys.executable, "-m", "hpu_magic.command_line", "hl-smi"]
    shown = subprocess.run(table, capture_output=True, text=True, check=True).stdout
    sentences = [f"process {process.pid} is left" for process in _processes()]
    sentences += [f"a card is held by process {pid}" for pid in _holders()]
    listed = re.findall(r"^\| +\d+ +(\d+) ", shown.partition("Compute Processes")[2], re.M)
    return sentences + [f"hl-smi lists process {pid}" for pid in listed]


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.25)


if __name__ == "__main__":
    for requested in json.loads(sys.argv[2]):
        print("RESULT", json.dumps(run(requested, Path(sys.argv[1]))), flush=True)
