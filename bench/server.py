"""Time, memory use and CPU usage of the Jupyter Server extension."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.harness import Figure, in_turn, quiet_ratio, running

CARDS = 8
SNAPSHOT = 5.0
CLIENTS = 5
FITS = 3
SECONDS = 20.0
UNWATCHED_SECONDS = 60.0
STARTED = 10.0  # seconds that the server needs to take its first sample
SAMPLES = 20_000
WARM_UP = 1_200  # enough samples to fill the history twice

_HOLD = "from hpu_magic.simulator import cards; cards.acquire(); print(flush=True); input()"
_FIT = """
import itertools, threading, time
from hpu_magic import sessions
from hpu_magic.simulator import cards
cards.acquire()
published, began = sessions.PublishedFit(), time.time()
def publish():
    for step in itertools.count(100, 100):
        published.update(
            sessions.Fit(
                model="Classifier", began=began, phase="training", epoch=1, epochs=10, batch=step,
                batches=10**6, step=step, share=0.1, remaining=600.0, rate=100.0, loss=1 / step,
            )
        )
        time.sleep(1)
threading.Thread(target=publish, daemon=True).start()
print(flush=True)
input()
"""


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory, held_cards(Path(directory)) as environment:
        ratio = snapshot_ratio(environment)
        yield Figure("snapshot of eight cards in use / reading its files", ratio, "ratio", SNAPSHOT)
        with server(Path(directory), environment) as (process, address, token):
            time.sleep(STARTED)
            with ThreadPoolExecutor() as pool:
                unwatched = pool.submit(unwatched_share, process)
                growth = asyncio.run(growth_per_sample())  # runs in this process, not in the server
                idle = unwatched.result()
            share = asyncio.run(processor_share(process, address, token))
        yield Figure("server, eight cards, without clients", idle, "%", 0.1)
        yield Figure("server, eight cards at 1 Hz, five clients, three fits", share, "%", 1.0)
    yield Figure("server's growth over 20,000 samples", growth, "B each", 0.1)


@contextmanager
def held_cards(directory: Path) -> Iterator[dict[str, str]]:
    """Start a process on each card, some of them with a fit; yield their environment variables."""
    environment = {
        **os.environ,
        "HPU_MAGIC_CARDS_DIR": str(directory / "cards"),
        "HPU_MAGIC_CARDS": str(CARDS),
        "JUPYTER_RUNTIME_DIR": str(directory / "runtime"),
    }
    environment.pop("HPU_MAGIC_SIMULATOR", None)  # the server does not import torch
    with ExitStack() as owners:
        for number in range(CARDS):
            owners.enter_context(running(_FIT if number < FITS else _HOLD, environment))
        yield environment


def snapshot_ratio(environment: dict[str, str]) -> float:
    """Return the time to take a snapshot relative to the time to read its files."""
    code = "from bench import server; server.compare_snapshot()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def compare_snapshot() -> None:
    """Measure and print the ratio; runs in a process with the cards' environment variables."""
    from hpu_magic.server import reader

    cards = reader.read()["cards"]
    assert all(card["holders"] for card in cards)
    holders = [holder for card in cards for holder in card["holders"]]
    processes = {
        *(each["pid"] for each in holders),
        *(up for each in holders for up in each["ancestors"]),
    }
    files = [file for file in Path(os.environ["HPU_MAGIC_CARDS_DIR"]).rglob("*") if file.is_file()]
    files += [
        Path(f"/proc/{each}/{name}") for each in processes for name in ("cmdline", "stat", "status")
    ]

    def read_files() -> None:
        for file in files:
            file.read_bytes()

    print(quiet_ratio(in_turn(read_files, reader.read, 300, clock=time.process_time)))


@contextmanager
def server(
    directory: Path, environment: dict[str, str]
) -> Iterator[tuple[psutil.Process, str, str]]:
    """Start a Jupyter server; yield its process, WebSocket address and token."""
    token = secrets.token_hex(16)
    command = [
        *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
        *("--ip=127.0.0.1", "--port=0", f"--IdentityProvider.token={token}"),
        f"--ServerApp.root_dir={directory}",
        "--ServerApp.jpserver_extensions={'hpu_magic': True}",
    ]
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=silent, stderr=silent) as started:
        try:
            place = directory / "runtime" / f"jpserver-{started.pid}.json"
            while not place.exists():
                if started.poll() is not None:
                    raise RuntimeError(f"The Jupyter server exited with code {started.returncode}.")
                time.sleep(0.1)
            time.sleep(2)  # the server is busy right after it starts
            address = json.loads(place.read_text())["url"].replace("http", "ws", 1)
            yield psutil.Process(started.pid), f"{address}hpu_magic/stream?interval=1", token
        finally:
            started.terminate()


def unwatched_share(process: psutil.Process) -> float:
    """Return the percentage of one core that the server and its reader use without clients."""
    before, started = processor_seconds(process), time.perf_counter()
    time.sleep(UNWATCHED_SECONDS)
    spent, taken = processor_seconds(process) - before, time.perf_counter() - started
    return 100 * spent / taken


async def processor_share(process: psutil.Process, address: str, token: str) -> float:
    """Return the percentage of one core that the server and its reader use with clients."""
    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    headers = {"Authorization": f"token {token}"}
    clients = [
        await websocket_connect(HTTPRequest(address, headers=headers)) for _ in range(CLIENTS)
    ]

    async def listen(client: Any) -> int:
        received = 0
        while (message := await client.read_message()) is not None:
            content = json.loads(message)
            if content["type"] == "snapshot":
                fits = [each["fit"] for card in content["cards"] for each in card["holders"]]
                received += sum(fit is not None for fit in fits) == FITS
        return received

    listening = [asyncio.ensure_future(listen(client)) for client in clients]
    await asyncio.sleep(3)
    before, started = processor_seconds(process), time.perf_counter()
    await asyncio.sleep(SECONDS)
    spent, taken = processor_seconds(process) - before, time.perf_counter() - started
    for client in clients:
        client.close()
    received = await asyncio.gather(*listening)
    if min(received) < 0.8 * SECONDS:
        raise RuntimeError(
            f"Clients received too few samples or updates of fits: {received} in {taken:.0f} s."
        )
    return 100 * spent / taken


def processor_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and its children."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


async def growth_per_sample() -> float:
    """Return the growth of the server's memory in bytes per sample, excluding the history."""
    from hpu_magic.server import reader
    from hpu_magic.server.sampler import CardSampler, Record

    template = reader.read()

    class Cards:
        async def read(self) -> Record:
            cards = [{**card, "holders": []} for card in template["cards"]]
            return {**template, "cards": cards}

        async def stop(self) -> None:
            pass

    async def join(_: Record) -> None:
        pass

    sampler = CardSampler(Cards(), join, logging.getLogger("bench"))
    sampler.subscribe(lambda message: None, 60.0)
    for _ in range(WARM_UP):
        await sampler.fresh()
    tracemalloc.start()
    try:
        for _ in range(100):
            await sampler.fresh()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(SAMPLES):
            await sampler.fresh()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await sampler.stop()
    return max(after - before, 0) / SAMPLES
