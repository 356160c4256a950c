"""Runs a cell on some ranks: streams the output, forwards interrupts and collects errors.

If a rank fails, the others may be waiting for it in a collective. The other ranks are interrupted
if they do not finish within a few seconds. After a failure or an interrupt, all ranks leave their
process group, because they may have entered different collectives.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hpu_magic.parallel.failure import RankFailure, RanksFailedError, RanksInterrupt
from hpu_magic.parallel.output import NotebookOutput, TerminalOutput, named
from hpu_magic.parallel.rank_reports import CELL, KEY
from hpu_magic.parallel.workers import RESTART, Workers
from hpu_magic.runtime.training.ranks import RankState

_TICK = 0.1  # seconds
_INTERRUPT_SECONDS = 30.0
_AGAIN_SECONDS = 0.5  # a second interrupt within this time is ignored
_INTERRUPTED = ("KeyboardInterrupt", "CancelledError")  # cells that use await raise CancelledError


@dataclass
class CellRun:
    """One run of a cell on some of the ranks."""

    workers: Workers
    ranks: Sequence[int]
    output: NotebookOutput | TerminalOutput
    # Function that is called ten times per second with the states of all ranks.
    watch: Callable[[dict[int, RankState]], None]
    grace: float  # seconds to wait after a rank fails before interrupting the others
    states: dict[int, RankState] = field(default_factory=dict)
    failures: dict[int, RankFailure] = field(default_factory=dict)
    _events: queue.SimpleQueue[tuple[int, str, Any]] = field(default_factory=queue.SimpleQueue)
    _interrupts: deque[float] = field(default_factory=deque)  # times of the user's interrupts
    _waiting: dict[int, set[str]] = field(default_factory=dict)
    _replies: dict[int, Any] = field(default_factory=dict)
    _interrupted: list[int] = field(default_factory=list)
    _interrupted_at: float | None = None  # time at which the user interrupted the cell
    _deadline: float | None = None
    _due: float = 0.0
    _gave_up: bool = False

    def run(self, code: str, number: int | None = None) -> None:
        """Run the cell on all ranks and wait; tracebacks show `number` as the cell number.

        Raises
        ------
        RanksFailedError
            The cell raised an exception on a rank, or a rank's process ended.
        KeyboardInterrupt
            The user interrupted the cell.
        """
        with self._collect_interrupts():
            for rank in self.ranks:
                self._send(rank, code, number)
            while self._waiting and not self._gave_up:
                self._step()
            self.output.finish()
        self._check_interrupts()
        self._raise()

    @contextlib.contextmanager
    def _collect_interrupts(self) -> Iterator[None]:
        """Collect the user's interrupts, because an exception could end any statement halfway."""
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGINT) is None:  # not handled by Python
            yield  # interrupts raise no exception here
            return

        def collect(*_: object) -> None:
            self._interrupts.append(time.monotonic())
            self._events.put((-1, "interrupt", None))  # wakes `_step`

        before = signal.signal(signal.SIGINT, collect)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _check_interrupts(self) -> None:
        while self._interrupts:
            moment = self._interrupts.popleft()
            if self._interrupted_at is None:
                self._interrupted_at = moment
                self._interrupt(moment + _INTERRUPT_SECONDS)
            elif moment - self._interrupted_at > _AGAIN_SECONDS:
                self._gave_up = True

    def _send(self, rank: int, code: str, number: int | None) -> None:
        client, engine = self.workers.client, self.workers.engines[rank]
        (identity,), _ = client._build_targets(engine)
        self._waiting[rank] = {"reply", "output"}
        self._replies[rank] = client.send_execute_request(
            client[engine]._socket,
            code,
            silent=False,
            metadata={CELL: number},
            ident=identity,
            message_future_hook=partial(self._listen, rank),
        )

    def _listen(self, rank: int, future: Any) -> None:
        """Forward messages received in ipyparallel's thread to this thread as events."""
        put = self._events.put
        future.iopub_callbacks.append(lambda message: put((rank, "message", message)))
        future.add_done_callback(lambda done: put((rank, "reply", done.result())))
        future.output.add_done_callback(lambda _: put((rank, "output", None)))

    def _step(self) -> None:
        """Handle one event, and check the deadlines periodically."""
        self._check_interrupts()
        now = time.monotonic()
        if now >= self._due:  # also when ranks print continuously
            self._due = now + _TICK
            self.output.refresh()
            self.watch(self.states)
            self._check_deadline()
        try:
            rank, kind, content = self._events.get(timeout=_TICK)
        except queue.Empty:
            return
        if kind == "interrupt":
            return
        if kind == "reply":
            self._on_reply(rank, content)
        elif kind == "output":
            self._ended(rank, "output")
        else:
            self._on_message(rank, content)

    def _check_deadline(self) -> None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return
        if self._interrupted_at is not None or self._interrupted:
            self._gave_up = True  # do not wait for ranks that ignore an interrupt
        else:
            self._interrupted = sorted(self._waiting)
            # A backward pass that waits for the failed ranks cannot be interrupted, but it ends
            # with an error when these ranks leave their process group.
            self.workers.begin_to_leave(list(self.failures))
            self._interrupt(time.monotonic() + _INTERRUPT_SECONDS)

    def _interrupt(self, deadline: float) -> None:
        self._deadline = deadline
        self.workers.interrupt(list(self._waiting))

    def _ended(self, rank: int, part: str) -> None:
        waiting = self._waiting.get(rank)
        if waiting is not None:
            waiting.discard(part)
            if not waiting:
                del self._waiting[rank]

    def _on_reply(self, rank: int, reply: Any) -> None:
        from ipyparallel.error import EngineError, RemoteError

        if isinstance(reply, RemoteError) and reply.ename == EngineError.__name__:
            self.workers.look()
            self._failed(rank, RankFailure("", self.workers.how_ended(rank), ""))
            self._ended(rank, "output")
        elif isinstance(reply, RemoteError):
            self._failed(rank, RankFailure(reply.ename, reply.evalue, reply.traceback or ""))
        self._ended(rank, "reply")

    def _failed(self, rank: int, failure: RankFailure) -> None:
        by_user = self._interrupted_at is not None and failure.name in _INTERRUPTED
        if by_user or rank in self._interrupted:
            return
        self.failures[rank] = failure
        if self._deadline is None:
            self._deadline = time.monotonic() + self.grace

    def _on_message(self, rank: int, message: Any) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "stream":
            self.output.text(rank, content["text"])
        elif kind in ("display_data", "execute_result"):
            self.output.show(rank, content)
        elif kind == "update_display_data":
            self.output.show(rank, content, update=True)
        elif kind == "clear_output":
            self.output.clear(rank)
        elif kind == "data_message":
            self._on_data(rank, message)

    def _on_data(self, rank: int, message: Any) -> None:
        from ipyparallel import serialize

        data, _ = serialize.deserialize_object(message["buffers"])
        if isinstance(data, dict) and KEY in data:  # cells may publish data of their own
            self.states[rank] = data[KEY]

    def _raise(self) -> None:
        silent = sorted(self._waiting)
        self.workers.unanswered.update({rank: self._replies[rank] for rank in silent})
        if not self.failures and self._interrupted_at is None:
            return
        advice = self._advice(silent)
        if self.failures:
            raise RanksFailedError(self.failures, self._interrupted, advice)
        raise RanksInterrupt(" ".join([f"Interrupted on {named(self.ranks)}.", *advice]))

    def _advice(self, silent: list[int]) -> list[str]:
        """Let ranks leave their process group, and return advice on how to continue."""
        if silent:
            verb = "does" if len(silent) == 1 else "do"
            return [f"{named(silent).capitalize()} {verb} not respond to the interrupt.", RESTART]
        if self.workers.look():
            return [RESTART]
        left, stuck = self._leave()
        if stuck:
            return [f"{named(stuck).capitalize()} could not leave the process group.", RESTART]
        if left:
            return ["The ranks have left their process group: the next cell can create a new one."]
        return []

    def _leave(self) -> tuple[bool, list[int]]:
        while True:
            try:
                return self.workers.leave_group()
            except KeyboardInterrupt:
                interrupted_at = self._interrupted_at
                if interrupted_at is None or time.monotonic() - interrupted_at > _AGAIN_SECONDS:
                    return False, sorted(self.ranks)
