"""``hpu_cards``: runs a function on multiple cards, with one process per card."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import IO, Any

import cloudpickle
import pytest

from hpu_magic import monitor
from hpu_magic.errors import HPUError
from hpu_magic.holders import listed
from hpu_magic.parallel import transfer
from hpu_magic.parallel.worker import free_port
from hpu_magic.runtime.device import device
from hpu_magic.testing import RankError
from hpu_magic.testing.limits import add_cost, allowed_of
from hpu_magic.testing.process import Companion, ending

_GRACE = 5.0  # seconds that other ranks have to return or exit after a failure
_WRITING = 5.0  # timeout in seconds for a rank to write its stack trace
_PAUSE = 0.2  # a stack trace without a new line for this many seconds is considered complete
_STARTING = 300.0  # in seconds; long, because the simulator may have to be compiled first


class Ranks:
    """Processes with one card each, and with the same environment variables as under torchrun.

    Calling an instance runs a function on all ranks in parallel, and returns a list of results
    indexed by rank. Functions defined in the test file, including local functions, are sent by
    value. Tensors on a card are sent as CPU tensors. The processes are reused by the next call,
    unless a call fails.

    Parameters
    ----------
    count : int
        The number of ranks, which is the world size.
    item : pytest.Item
        The test, which is skipped if the machine has fewer cards.
    backend : str, optional
        If passed, each rank first joins a process group with this backend, for example ``"hccl"``.
    timeout : float
        The maximum duration of a call in seconds.
    """

    def __init__(
        self, count: int, item: pytest.Item, *, backend: str | None = None, timeout: float = 120.0
    ) -> None:
        if type(count) is not int or count < 1:
            raise HPUError(f"hpu_cards needs at least 1 card, got hpu_cards({count!r}).")
        self._count, self._item = count, item
        self._backend, self._timeout = backend, timeout
        self._processes: list[Companion] = []
        self._stacks: list[IO[str]] = []  # ranks write stack traces here on SIGUSR1
        self._waiting: dict[Any, int] = {}  # ranks that have not replied, by connection
        available = device.torch_with_hpu().hpu.device_count()
        if available < count:
            pytest.skip(f"needs {count} cards, but this machine has {available}")

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Run a function on all ranks, and return a list of results indexed by rank.

        Raises
        ------
        RankError
            A rank ended or did not return in time. All other ranks are then terminated.
        Exception
            The first exception that a rank raised, with its traceback as the cause.
        """
        __tracebackhide__ = True
        name = getattr(function, "__qualname__", repr(function))
        payload = self._packed(function, args, kwargs)
        if not self._processes:
            self._start()
        try:
            for process in self._processes:
                process.connection.send_bytes(payload)
            return self._answers(name, self._timeout)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Terminate the processes, which frees their cards.

        Processes that are waiting for a call exit normally, so that they can write data such as
        coverage.
        """
        idle = []
        for process in self._processes:
            if process.connection in self._waiting:
                process.stop()
                continue
            idle.append(process)
            with suppress(OSError):
                process.connection.send_bytes(b"")
        for process in idle:
            process.finish(_GRACE)
        for stack in self._stacks:
            stack.close()
        self._processes, self._stacks, self._waiting = [], [], {}

    def _packed(self, function: Any, args: Any, kwargs: Any) -> bytes:
        values = {"function": function, "args": args, "kwargs": kwargs}
        try:
            with _sent_by_value(getattr(self._item, "module", None)):
                return transfer.pack(values, "hpu")
        except HPUError as refused:
            raise RankError(f"hpu_cards: {refused}") from refused.__cause__

    def _start(self) -> None:
        self._refuse_held_cards()
        common = {**os.environ}
        common.pop("HLS_MODULE_ID", None)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        common.setdefault("OMP_NUM_THREADS", str(max(1, cores // self._count)))
        common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        common |= {"WORLD_SIZE": str(self._count), "LOCAL_WORLD_SIZE": str(self._count)}
        for rank in range(self._count):
            environment = common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = Companion("hpu_magic.testing.rank:serve", environment, sys.path, Path.cwd())
            self._processes.append(process)
            stack = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the processes)
            self._stacks.append(stack)
            process.connection.send((self._backend, allowed_of(self._item)))
            send_handle(process.connection, stack.fileno(), process.process.pid)
        self._answers("its start", _STARTING)

    def _refuse_held_cards(self) -> None:
        """Raise a `RankError` that lists the holders of the cards if too few cards are free."""
        cards = monitor.snapshot().cards
        held = [(card.label, holder) for card in cards for holder in card.holders]
        free = sum(not card.holders for card in cards)
        if not cards or free >= self._count:
            return
        raise RankError(
            f"hpu_cards({self._count}) needs {self._count} free cards, but only {free} of "
            f"{len(cards)} are free (held: {listed(held)}); end these processes. A test process "
            "keeps its card until it ends, so run tests with hpu_cards first or in a separate "
            "session."
        )

    def _answers(self, name: str, longest: float) -> list[Any]:
        """Return the results of the ranks, or raise the first exception that a rank raised."""
        __tracebackhide__ = True
        results: list[Any] = [None] * self._count
        waiting = self._waiting = {
            process.connection: rank for rank, process in enumerate(self._processes)
        }
        end, failure = time.monotonic() + longest, None
        while waiting:
            ready = wait(list(waiting), max(0.0, end - time.monotonic()))
            if not ready:
                break
            for connection in ready:
                rank = waiting.pop(connection)
                failed, results[rank] = self._answer(rank, name)
                if failed is not None and failure is None:
                    failure = failed
                    end = min(end, time.monotonic() + _GRACE)
        if failure is not None:
            raise failure
        if waiting:
            raise RankError(self._late(sorted(waiting.values()), name, longest))
        return results

    def _answer(self, rank: int, name: str) -> tuple[BaseException | None, Any]:
        process = self._processes[rank]
        which = f"rank {rank} of {self._count}"
        try:
            kind, content, cost = process.connection.recv()
        except (EOFError, OSError):
            how = ending(process.process)
            return RankError(f"{which} ended with {how} in {name}."), None
        if cost is not None:
            add_cost(self._item, cost)
        if kind == "returned":
            return None, transfer.unpack(content)["result"]
        packed, text = content
        try:
            error = transfer.unpack(packed)["error"]
        except HPUError:
            error = RankError(f"{which} raised in {name}: {text.splitlines()[-1]}")
        error.__cause__ = RankTraceback(f"on {which}:\n{text}")
        return error, None

    def _late(self, ranks: list[int], name: str, longest: float) -> str:
        for rank in ranks:
            self._processes[rank].process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + _WRITING
        stacks = [f"rank {rank}:\n{_written(self._stacks[rank], end)}" for rank in ranks]
        which = ", ".join(map(str, ranks))
        noun = "rank" if len(ranks) == 1 else "ranks"
        return (
            f"{noun} {which} of {self._count} did not return from {name} within {longest:g} s.\n"
            + "\n".join(stacks)
        )


def _written(stack: IO[str], end: float) -> str:
    """Wait until a process has stopped writing to a file, and return the file's contents."""
    text, before = "", None
    while text != before or (not text and time.monotonic() < end):
        before = text
        time.sleep(_PAUSE)
        stack.seek(0)
        text = stack.read().rstrip()
    return text


class RankTraceback(Exception):
    """The traceback of an exception from another process, as text."""


@contextmanager
def _sent_by_value(module: Any) -> Iterator[None]:
    """Send a module's functions and classes by value, because ranks may be unable to import it."""
    if module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
