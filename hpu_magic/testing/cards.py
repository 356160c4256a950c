"""``hpu_cards``: a function on several cards, each in a process of its own."""

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
from hpu_magic.parallel import transfer
from hpu_magic.parallel.worker import free_port
from hpu_magic.runtime.device import device
from hpu_magic.testing import RankError
from hpu_magic.testing.limits import add_cost, allowed_of
from hpu_magic.testing.process import Companion, ending

_GRACE = 5.0  # seconds in which other ranks may end what one has failed in, or themselves
_WRITING = 5.0  # seconds in which one writes where it is
_PAUSE = 0.2  # seconds without a further line, after which that is complete
_STARTING = 300.0  # seconds, as the simulator may have to be compiled


class Ranks:
    """Processes on a card each, with the environment that torchrun gives.

    Calling it runs a function on all of them at the same time and returns what each returned, by
    rank. Functions of the test's file travel whole, local ones too. Tensors of a card are sent as
    tensors of the host. The processes stay for the next call; after a failure, new ones begin.

    Parameters
    ----------
    count : int
        How many: the world size.
    item : pytest.Item
        The test. It is skipped where the machine has fewer cards.
    backend : str, optional
        Have each rank join a process group first, such as ``"hccl"``.
    timeout : float
        Seconds that a call may take.
    """

    def __init__(
        self, count: int, item: pytest.Item, *, backend: str | None = None, timeout: float = 120.0
    ) -> None:
        if type(count) is not int or count < 1:
            raise ValueError(f"hpu_cards({count!r}): give the number of cards, 1 or more.")
        self._count, self._item = count, item
        self._backend, self._timeout = backend, timeout
        self._processes: list[Companion] = []
        self._stacks: list[IO[str]] = []  # what a rank writes on SIGUSR1
        self._waiting: dict[Any, int] = {}  # ranks that have not answered yet, by connection
        there = device.torch_with_hpu().hpu.device_count()
        if there < count:
            pytest.skip(f"needs {count} cards, and this machine has {there}")

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Run a function on all ranks.

        Returns
        -------
        list
            What each returned, by rank.

        Raises
        ------
        RankError
            A rank ended, or one did not come back in time; the others are ended.
        Exception
            The first that a rank raised, with its traceback there as the cause.
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
        """End the processes, which gives their cards back.

        Those that wait for the next call end by themselves, so that what they keep for their end,
        such as a measurement of coverage, is written.
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
            with _whole(getattr(self._item, "module", None)):
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
        """Say who holds cards, before ranks fail for want of one.

        Raises
        ------
        RankError
            Too few are free.
        """
        cards = monitor.snapshot().cards
        held = [(card.label, one) for card in cards for one in card.holders]
        free = sum(not card.holders for card in cards)
        if not cards or free >= self._count:
            return
        named = ", ".join(
            f"{name} by "
            + ("this process" if one.pid == os.getpid() else f"process {one.pid} ({one.command})")
            for name, one in held
        )
        raise RankError(
            f"hpu_cards({self._count}) needs as many free cards, and {free} of {len(cards)} are "
            f"free: held are {named}. End those processes; a test process keeps its card to its "
            "end, so have tests with hpu_cards run before others, or in a session of their own."
        )

    def _answers(self, name: str, longest: float) -> list[Any]:
        """Return what the ranks send back, or raise what the first of them raised."""
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
            f"{noun} {which} of {self._count} did not come back from {name} within {longest:g} s.\n"
            + "\n".join(stacks)
        )


def _written(stack: IO[str], end: float) -> str:
    """Return what a process has written to a file, once it has written no more for a while."""
    text, before = "", None
    while text != before or (not text and time.monotonic() < end):
        before = text
        time.sleep(_PAUSE)
        stack.seek(0)
        text = stack.read().rstrip()
    return text


class RankTraceback(Exception):
    """The traceback of an exception in the process that raised it, as text."""


@contextmanager
def _whole(module: Any) -> Iterator[None]:
    """Send functions and classes of a module whole: ranks may not find it by its name."""
    if module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
