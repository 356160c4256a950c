"""One cell on some ranks: its output as it comes, its interrupt, its end.

If a rank fails, the others may wait for it in a collective. They get a few seconds and are then
interrupted. After a failure or an interrupt, all ranks leave their process group, because they may
have started different collectives.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hpu_magic.parallel.failure import RankFailure, RanksFailedError, RanksInterrupt
from hpu_magic.parallel.output import NotebookOutput, TerminalOutput, named
from hpu_magic.parallel.telling import CELL, KEY
from hpu_magic.parallel.workers import Workers
from hpu_magic.runtime.measure.ranks import RankState

_TICK = 0.1  # seconds
_INTERRUPT_SECONDS = 30.0
_AGAIN_SECONDS = 0.5  # an interrupt that follows within them is the same one
_INTERRUPTED = ("KeyboardInterrupt", "CancelledError")  # the latter where a cell awaits


@dataclass
class CellRun:
    """A cell on its way through some ranks.

    Parameters
    ----------
    workers
        Whose ranks.
    ranks
        Those that run it.
    output
        Takes what they print and show.
    watch
        Called about ten times a second with what each rank told last.
    grace
        Seconds that the other ranks may go on after one has failed, before they are interrupted.
    """

    workers: Workers
    ranks: Sequence[int]
    output: NotebookOutput | TerminalOutput
    watch: Callable[[dict[int, RankState]], None]
    grace: float
    states: dict[int, RankState] = field(default_factory=dict)
    failures: dict[int, RankFailure] = field(default_factory=dict)
    _events: queue.SimpleQueue[tuple[int, str, Any]] = field(default_factory=queue.SimpleQueue)
    _waiting: dict[int, set[str]] = field(default_factory=dict)
    _replies: dict[int, Any] = field(default_factory=dict)
    _interrupted: list[int] = field(default_factory=list)
    _by_hand: float | None = None  # when
    _deadline: float | None = None
    _due: float = 0.0
    _gave_up: bool = False

    def run(self, code: str, number: int | None = None) -> None:
        """Run the cell on all ranks and wait for them.

        Parameters
        ----------
        code
            The cell.
        number
            The cell's in the notebook, by which tracebacks name it.

        Raises
        ------
        RanksFailedError
            It raised on some rank, or a rank's process ended.
        KeyboardInterrupt
            It was interrupted by hand.
        """
        unsent = list(self.ranks)
        while unsent or (self._waiting and not self._gave_up):
            try:
                while unsent:
                    self._send(unsent[0], code, number)
                    unsent.pop(0)
                self._step()
            except KeyboardInterrupt:
                now = time.monotonic()
                if self._by_hand is None:
                    self._by_hand = now
                    unsent.clear()
                    self._interrupt(now + _INTERRUPT_SECONDS)
                elif now - self._by_hand > _AGAIN_SECONDS:
                    break
        self.output.finish()
        self._raise()

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
        """Turn what ipyparallel's thread hears into events for this one."""
        put = self._events.put
        future.iopub_callbacks.append(lambda message: put((rank, "message", message)))
        future.add_done_callback(lambda done: put((rank, "reply", done.result())))
        future.output.add_done_callback(lambda _: put((rank, "output", None)))

    def _step(self) -> None:
        """Handle what comes within a tick, then look around."""
        now = time.monotonic()
        if now >= self._due:  # also while ranks print without a pause
            self._due = now + _TICK
            self.output.refresh()
            self.watch(self.states)
            self._look_at_the_clock()
        try:
            rank, kind, what = self._events.get(timeout=_TICK)
        except queue.Empty:
            return
        if kind == "reply":
            self._replied(rank, what)
        elif kind == "output":
            self._ended(rank, "output")
        else:
            self._heard(rank, what)

    def _look_at_the_clock(self) -> None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return
        if self._by_hand is not None or self._interrupted:
            self._gave_up = True  # who does not answer an interrupt is not waited for
        else:
            self._interrupted = sorted(self._waiting)
            # A backward pass that waits for these ranks takes no interrupt, but an error.
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

    def _replied(self, rank: int, reply: Any) -> None:
        from ipyparallel.error import EngineError, RemoteError

        if isinstance(reply, RemoteError) and reply.ename == EngineError.__name__:
            self.workers.look()
            self._failed(rank, RankFailure("", self.workers.how_ended(rank), ""))
            self._ended(rank, "output")
        elif isinstance(reply, RemoteError):
            self._failed(rank, RankFailure(reply.ename, reply.evalue, reply.traceback or ""))
        self._ended(rank, "reply")

    def _failed(self, rank: int, failure: RankFailure) -> None:
        by_hand = self._by_hand is not None and failure.name in _INTERRUPTED
        if by_hand or rank in self._interrupted:
            return
        self.failures[rank] = failure
        if self._deadline is None:
            self._deadline = time.monotonic() + self.grace

    def _heard(self, rank: int, message: Any) -> None:
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
            self._told(rank, message)

    def _told(self, rank: int, message: Any) -> None:
        from ipyparallel import serialize

        data, _ = serialize.deserialize_object(message["buffers"])
        if isinstance(data, dict) and KEY in data:  # a cell may publish data of its own
            self.states[rank] = data[KEY]

    def _raise(self) -> None:
        silent = sorted(self._waiting)
        self.workers.unanswered.update({rank: self._replies[rank] for rank in silent})
        if not self.failures and self._by_hand is None:
            return
        advice = self._advice(silent)
        if self.failures:
            raise RanksFailedError(self.failures, self._interrupted, advice)
        raise RanksInterrupt(" ".join([f"Interrupted on {named(self.ranks)}.", *advice]))

    def _advice(self, silent: list[int]) -> list[str]:
        """Say what is left of the workers; ranks that may be out of step leave their group."""
        if silent:
            who = named(silent)
            verb = "does" if len(silent) == 1 else "do"
            return [
                f"{who.capitalize()} {verb} not answer the interrupt: %hpu_workers restart "
                "ends all workers and starts new ones."
            ]
        if self.workers.look():
            return ["%hpu_workers restart starts all ranks anew (their variables are lost)."]
        left, stuck = self._leave()
        if stuck:
            return [
                f"{named(stuck).capitalize()} could not leave the process group: %hpu_workers "
                "restart starts all ranks anew (their variables are lost)."
            ]
        if left:
            return ["The ranks have left their process group: the next cell may form a new one."]
        return []

    def _leave(self) -> tuple[bool, list[int]]:
        while True:
            try:
                return self.workers.leave_group()
            except KeyboardInterrupt:
                if self._by_hand is None or time.monotonic() - self._by_hand > _AGAIN_SECONDS:
                    return False, sorted(self.ranks)
