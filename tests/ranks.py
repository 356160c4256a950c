"""Ranks that run functions of test files, in forks of a process that has imported torch."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any, NamedTuple

LONGEST = 120
"""Time limit of a function in seconds."""

_SERVER = """
import gc, json, os, sys

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
import torch._dynamo  # optimizers import it
import torch.distributed
for name in sys.argv[1:]:
    __import__(name)

gc.freeze()  # a collection would write to every page that a fork shares
for line in sys.stdin:
    request = json.loads(line)
    pids = []
    for environment in request["environments"]:
        child = os.fork()
        if child == 0:
            break
        pids.append(child)
    else:
        print(json.dumps(pids), flush=True)
        continue
    break
else:
    sys.exit()

import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)
os.environ.clear()
os.environ.update(environment)
sys.path.insert(0, request["folder"])
if torch._is_device_backend_autoload_enabled():
    torch._import_device_backends()
import ranks
ranks.serve(request["address"])
"""


class Named(NamedTuple):
    """A function in a file that only the ranks import."""

    path: str
    name: str


class Failed(AssertionError):
    """A function raised an error on one of the ranks."""


class Server:
    """Starts groups of ranks on private cards.

    All ranks have imported the modules `imported`, by default without the device.
    """

    def __init__(self, *imported: str, **environment: str) -> None:
        self._numbers = itertools.count()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, *imported],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def start(self, size: int, **environment: str) -> Ranks:
        """Start `size` ranks with the environment variables of torchrun."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        cards = f"{os.environ['HPU_MAGIC_CARDS_DIR']}-of-ranks-{next(self._numbers)}"
        common = {
            **os.environ,
            "HPU_MAGIC_SIMULATOR": "1",
            "HPU_MAGIC_CARDS_DIR": cards,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(size),
            "OMP_NUM_THREADS": "1",
            **environment,
        }
        environments = [
            {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)
        ]
        with tempfile.TemporaryDirectory() as folder:
            address = os.path.join(folder, "ranks")
            with Listener(address, "AF_UNIX", size) as listener:
                request = {
                    "environments": environments,
                    "address": address,
                    "folder": str(Path(__file__).parent),
                }
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
                pids = json.loads(self._process.stdout.readline())
                connections = [listener.accept() for _ in range(size)]
        by_rank = {connection.recv(): connection for connection in connections}
        return Ranks(pids, [by_rank[rank] for rank in range(size)], cards)

    def close(self) -> None:
        """End the forked process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class Ranks:
    """Processes that run the same function at the same time."""

    def __init__(self, pids: list[int], connections: list[Connection], cards: str) -> None:
        self.pids = pids
        self.cards = cards  # the folder of their cards
        self._connections = connections

    def __call__(self, function: Callable[..., Any] | Named, *args: Any) -> list[Any]:
        """Return the result of a function on each rank; the function must not raise an error."""
        self.ask(function, *args)
        answers = [self.answer(rank) for rank in range(len(self.pids))]
        for rank, (_, error) in enumerate(answers):
            if error:
                raise Failed(f"rank {rank}: {error}")
        return [value for value, _ in answers]

    def ask(self, function: Callable[..., Any] | Named, *args: Any, of: Iterable[int] = ()) -> None:
        """Start a function on the ranks in `of`, or on all ranks by default."""
        if not isinstance(function, Named):
            function = Named(function.__code__.co_filename, function.__name__)
        request = (*function, args)
        for rank in of or range(len(self.pids)):
            self._connections[rank].send(request)

    def answer(self, rank: int, longest: float = LONGEST) -> tuple[Any, str]:
        """Return the result of a rank, or its error."""
        connection = self._connections[rank]
        if not wait([connection], longest):
            self.close()
            raise Failed(f"rank {rank} did not answer within {longest:g} s")
        return connection.recv()

    def answers(self, longest: float = LONGEST) -> list[Any]:
        """Return the results of all ranks, and raise the first error of any of them."""
        waiting, found = dict(zip(self._connections, self.pids, strict=True)), {}
        while waiting:
            ready = wait([*waiting], longest)
            if not ready:
                raise Failed(f"TimeoutError: {len(waiting)} ranks did not answer in {longest:g} s")
            for connection in ready:
                pid = waiting.pop(connection)
                try:
                    found[pid], error = connection.recv()
                except EOFError:
                    raise Failed(f"ChildProcessError: process {pid} ended") from None
                if error:
                    raise Failed(error)
        return [found[pid] for pid in self.pids]

    def close(self) -> None:
        """Kill all ranks."""
        for pid, connection in zip(self.pids, self._connections, strict=True):
            connection.close()
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def join(seconds: float = 60) -> None:
    """Create the default group of the ranks: hccl for device tensors, gloo for CPU tensors."""
    import torch.distributed as dist

    dist.init_process_group("cpu:gloo,hpu:hccl", timeout=datetime.timedelta(seconds=seconds))


def serve(address: str) -> None:
    """Run the requested functions in a rank."""
    import gc
    import runpy
    import traceback
    from multiprocessing.connection import Client

    files: dict[str, dict[str, Any]] = {}
    with Client(address, "AF_UNIX") as connection:
        connection.send(int(os.environ["RANK"]))
        while True:
            try:
                path, name, args = connection.recv()
            except EOFError:
                break
            if path not in files:
                sys.path.insert(0, str(Path(path).parent))
                files[path] = runpy.run_path(path, run_name=Path(path).stem)
            try:
                answer = files[path][name](*args), ""
            except BaseException as error:  # noqa: BLE001 (the test raises it)
                answer = None, "".join(traceback.format_exception(error))
            gc.collect()
            connection.send(answer)
    os._exit(0)
