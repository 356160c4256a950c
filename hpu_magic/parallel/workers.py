"""Start, call and end the workers of this notebook."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from hpu_magic import monitor, sessions
from hpu_magic.errors import HPUError
from hpu_magic.parallel import transfer, worker
from hpu_magic.parallel.cluster import Cluster
from hpu_magic.parallel.reserve import Reservation
from hpu_magic.runtime.device.free_cards import VISIBLE, free_cards, visible_cards
from hpu_magic.runtime.execution import flags
from hpu_magic.runtime.training.ranks import RankState

_ANSWER_SECONDS = 2.0
_LEAVE_SECONDS = 20.0
_CARD = "HLS_MODULE_ID"

RESTART = "Run %hpu_workers restart to restart all ranks (their variables are lost)."
"""Advice for a group of ranks that is incomplete or inconsistent."""


class Workers:
    """A set of processes that run cells together, each with its own card.

    Starting the workers takes a few seconds, so a line is printed to standard output first. If
    `count` is None, one worker is started per free card, unless the profile sets the number.
    `profile` is an IPython profile whose ``ipcluster_config.py`` configures how the workers are
    launched, or None to launch them on this machine.

    Raises
    ------
    HPUError
        There are not enough free cards, or the processes did not start.
    """

    def __init__(self, count: int | None, profile: str | None = None) -> None:
        machine = monitor.snapshot()
        modules = free_cards(machine, count) if profile is None else []
        self.profile = profile
        self._reservation = Reservation(
            modules, [card.module_id for card in visible_cards(machine)]
        )
        count = count or len(modules) or None
        try:
            print(_announcement(count, profile), flush=True)
            self._cluster = Cluster(count, profile)
            try:
                self._seat(modules)
            except BaseException:
                self._cluster.stop()
                raise
        except BaseException:
            self._reservation.release()
            raise

    def _seat(self, modules: Sequence[int]) -> None:
        """Assign a rank to each engine; engines on the same machine have consecutive ranks."""
        client = self._cluster.client
        who = client[:].apply_sync(worker.introduce)
        order = sorted(zip(who, client.ids, strict=True), key=lambda item: (item[0].host, item[1]))
        self.introductions = [introduction for introduction, _ in order]
        self.engines = [engine for _, engine in order]
        self._last_states = [
            RankState(rank, each.host, each.pid) for rank, each in enumerate(self.introductions)
        ]
        self.lost: set[int] = set()
        self.unanswered: dict[int, Future[Any]] = {}
        hosts = list(dict.fromkeys(each.host for each in self.introductions))
        shared = _settings()
        shared["WORLD_SIZE"] = str(len(order))
        shared["MASTER_ADDR"] = "127.0.0.1" if len(hosts) == 1 else hosts[0]
        shared["MASTER_PORT"] = str(client[self.engines[0]].apply_sync(worker.free_port))
        session = sessions.session(os.getpid())
        leader = (session and session.notebook) or f"pid {os.getpid()}"
        here = [each.host for each in self.introductions]
        requests = []
        for rank, (introduction, engine) in enumerate(order):
            local = rank - here.index(introduction.host)
            place = dict(shared)
            place["RANK"], place["LOCAL_RANK"] = str(rank), str(local)
            place["LOCAL_WORLD_SIZE"] = str(here.count(introduction.host))
            node = str(hosts.index(introduction.host))
            place["NODE_RANK"] = place["GROUP_RANK"] = node
            if len(modules) == len(order):
                place[VISIBLE] = ",".join(map(str, modules))
                place[_CARD] = str(modules[local])
            folder = os.getcwd() if self._cluster.local else None
            rank_settings = worker.RankSettings(place, folder, self._path(), leader)
            requests.append(client[engine].apply_async(worker.become_rank, rank_settings))
        for request in requests:
            request.get()

    def __len__(self) -> int:
        return len(self.engines)

    @property
    def client(self) -> Any:
        """The ipyparallel client; `engines` lists its engines in rank order."""
        return self._cluster.client

    def interrupt(self, ranks: Sequence[int]) -> None:
        """Interrupt ranks, like Ctrl-C."""
        self._cluster.interrupt([self.engines[rank] for rank in ranks if rank not in self.lost])

    def how_ended(self, rank: int) -> str:
        """Return how the process of a rank ended, such as ``was killed by SIGKILL``."""
        return self._cluster.how_ended(self.introductions[rank].pid)

    def look(self) -> set[int]:
        """Check which ranks still exist, and return all ranks that have ended."""
        there = set(self.client.ids)
        self.lost |= {rank for rank, engine in enumerate(self.engines) if engine not in there}
        return self.lost

    def busy(self) -> list[int]:
        """Return the ranks that are still running an earlier cell that nothing waits for."""
        self.unanswered = {
            rank: reply for rank, reply in self.unanswered.items() if not reply.done()
        }
        return sorted(self.unanswered)

    def push(self, values: dict[str, Any], ranks: Sequence[int]) -> None:
        """Set variables on ranks.

        Raises
        ------
        HPUError
            A value cannot be sent.
        """
        payload = transfer.pack(values, "hpu")
        self._call(ranks, worker.receive, payload, self._path())

    def pull(self, names: Sequence[str], ranks: Sequence[int]) -> dict[str, list[Any]]:
        """Return variables from ranks: a list in the order of `ranks` for each name.

        Raises
        ------
        HPUError
            A rank does not have the variable, or its value cannot be sent.
        """
        payloads = self._call(ranks, worker.send, list(names))
        values = [transfer.unpack(payload) for payload in payloads]
        return {name: [each[name] for each in values] for name in names}

    def last_state(self, rank: int) -> RankState:
        """Return the last known state of a rank, which is the initial state for a new cell."""
        return self._last_states[rank]

    def remember(self, states: Mapping[int, RankState]) -> None:
        """Store the last states of ranks, excluding the cell's step count and speed."""
        for rank, state in states.items():
            self._last_states[rank] = dataclasses.replace(
                state, steps=0, steps_per_second=None, own_seconds=None
            )

    def states(self) -> list[RankState | None]:
        """Return the current state of each rank, or None if a rank did not answer in time."""
        self.look()
        requests = {
            rank: self.client[engine].apply_async(worker.state)
            for rank, engine in enumerate(self.engines)
            if rank not in self.lost and rank not in self.busy()
        }
        states: list[RankState | None] = [None] * len(self)
        for rank, request in requests.items():
            request.wait(_ANSWER_SECONDS)
            if request.ready():
                states[rank] = request.get()
        return states

    def begin_to_leave(self, ranks: Sequence[int]) -> None:
        """Make ranks leave their process group, without waiting for them."""
        gone = self.look()
        self._request([rank for rank in ranks if rank not in gone], worker.leave_group)

    def leave_group(self) -> tuple[bool, list[int]]:
        """Make every rank leave its process group.

        Returns whether there was a process group, and the ranks that could not leave it.
        """
        from ipyparallel.error import RemoteError

        gone = self.look() | set(self.busy())
        alive = [rank for rank in range(len(self)) if rank not in gone]
        if not alive:
            return False, []
        (port,) = self._call(alive[:1], worker.free_port)
        self._call(alive, worker.set_port, port)
        requests = self._request(alive, worker.leave_group)
        left, stuck, until = False, [], time.monotonic() + _LEAVE_SECONDS
        for rank, request in requests.items():
            try:
                left |= request.get(max(0.0, until - time.monotonic()))
            except TimeoutError:
                self.unanswered[rank] = request
                stuck.append(rank)
            except RemoteError:
                stuck.append(rank)
        return left, stuck

    def stop(self, *, at_exit: bool = False) -> None:
        """End the workers and free their cards."""
        self._reservation.release()
        self._cluster.stop(at_exit=at_exit)

    def _path(self) -> list[str] | None:
        """Return this process's ``sys.path``, or None if the workers are on other machines."""
        return list(sys.path) if self._cluster.local else None

    def _request(
        self, ranks: Sequence[int], function: Callable[..., Any], *arguments: Any
    ) -> dict[int, Any]:
        engines = {rank: self.client[self.engines[rank]] for rank in ranks}
        return {rank: view.apply_async(function, *arguments) for rank, view in engines.items()}

    def _call(
        self, ranks: Sequence[int], function: Callable[..., Any], *arguments: Any
    ) -> list[Any]:
        from ipyparallel.error import EngineError, RemoteError

        answers = []
        for rank, request in self._request(ranks, function, *arguments).items():
            try:
                answers.append(request.get())
            except RemoteError as error:
                if error.ename == HPUError.__name__:
                    raise HPUError(f"Rank {rank}: {error.evalue}") from None
                if error.ename == EngineError.__name__:
                    self.look()
                    raise HPUError(f"Rank {rank} {self.how_ended(rank)}.") from None
                raise
        return answers


def _announcement(count: int | None, profile: str | None) -> str:
    workers = f"{count or ''} worker{'' if count == 1 else 's'}".strip()
    return f"Starting {workers}, {f'by the profile {profile}' if profile else 'one per card'}."


def _settings() -> dict[str, str]:
    """Return the flags of this process that its ranks inherit."""
    own = set(flags.documented()) - {_CARD, VISIBLE}
    return {name: value for name, value in os.environ.items() if name in own}
