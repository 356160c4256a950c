"""Messages between the ranks of a dry run, delivered by ``hpu-magic dry-run``."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from hpu_magic.simulator import card_time

_MOST_PUBLISHED = 1 << 20  # bytes of a CPU tensor

Message = tuple[int, float, bytes | None]
"""Size in bytes, time on the card's clock when the sender was ready, and values if known."""


class RankError(RuntimeError):
    """A message cannot be exchanged with another rank."""


class Command:
    """The connection to ``hpu-magic dry-run``, which started this rank.

    Parameters
    ----------
    descriptor
        File descriptor of the connection.
    end
        Function that ends the script after other ranks have ended.
    """

    def __init__(self, descriptor: int, end: Callable[[], None]) -> None:
        os.set_inheritable(descriptor, False)
        self._connection = Connection(descriptor)
        self._end = end
        self._lock = threading.Lock()

    def post(self, *request: Any) -> None:
        """Send a request that has no result."""
        with self._lock:
            self._connection.send(request)

    def ask(self, *request: Any) -> Any:
        """Send a request, and wait for its result; None if the script is ending.

        Raises
        ------
        RankError
            Another rank cannot send or receive the message.
        RunEnded
            Another rank has ended the run.
        """
        with self._lock:
            self._connection.send(request)
            how, *result = self._connection.recv()
        if how == "failed":
            raise RankError(*result)
        if how == "found":
            return result[0]
        return self._end()


class Messages:
    """Exchanges the messages of this rank's process groups.

    A message contains a size and, if the sender knows them, the values.
    """

    def __init__(self, native: Any, command: Command) -> None:
        self._engine = native
        self._command = command
        self._sent: Counter[Any] = Counter()
        self._received: Counter[Any] = Counter()
        self._broadcasts: Counter[str] = Counter()
        self._coalesced: dict[str, list[_Message]] = {}
        self.arrivals: list[tuple[float, float, float]] = []
        """Times on the card's clock: when this rank was ready to receive, when both ranks were
        ready, and when the message arrived."""

    def install(self) -> None:
        """Replace the methods of process groups that exchange messages."""
        group: Any = dist.ProcessGroup
        replaced: dict[str, Callable[..., Any]] = {
            "send": self._send,
            "recv": self._receive,
            "recv_anysource": self._receive_from_any,
            "broadcast": self._broadcast,
            "_start_coalescing": self._start_coalescing,
            "_end_coalescing": self._end_coalescing,
        }
        for name, method in replaced.items():
            setattr(group, name, _bound(getattr(group, name), method))

    def _send(self, send: Any, group: Any, tensors: Any, destination: int, tag: int = 0) -> Any:
        work = send(group, tensors, destination, tag)
        channel = (group.group_name, dist.get_rank(), _global(group, destination), tag)
        self._sent[channel] += 1
        self._command.post("send", channel, self._message(tensors[0]))
        ask = partial(self._ask, "deliver", channel, self._sent[channel])
        return self._started(group, _Message(work, ask))

    def _receive(self, receive: Any, group: Any, tensors: Any, source: int, tag: int = 0) -> Any:
        work = receive(group, tensors, source, tag)
        channel = (group.group_name, _global(group, source), dist.get_rank(), tag)
        self._received[channel] += 1
        self._command.post("expect", channel)
        number, tensor, ready = self._received[channel], tensors[0], self._ready()
        seconds = card_time.last_transfer() if tensor.device.type == "hpu" else 0.0

        def finish() -> None:
            message = self._ask("receive", channel, number)
            if message is None:
                return
            size, sender_is_ready, values = message
            if size != tensor.nbytes:
                raise RankError(
                    f"Rank {channel[1]} sent {size} bytes, but rank {channel[2]} receives "
                    f"{tensor.nbytes} bytes: send and receive tensors of the same size and dtype."
                )
            self._store(tensor, values)
            if card_time.is_on() and tensor.device.type == "hpu":
                begin = max(ready, sender_is_ready)
                self.arrivals.append((ready, begin, begin + seconds))
                self._engine.join_clock(begin + seconds)

        return self._started(group, _Message(work, finish))

    def _receive_from_any(self, receive: Any, group: Any, *arguments: Any) -> Any:
        receive(group, *arguments)  # raises an error if the backend does not support it
        raise RankError(
            "A dry run cannot receive a message from an arbitrary rank: pass its source."
        )

    def _broadcast(self, broadcast: Any, group: Any, *arguments: Any, **named: Any) -> Any:
        """Broadcast a tensor, and exchange its values with the other running ranks if known."""
        work = broadcast(group, *arguments, **named)
        tensors, options, *_ = *arguments, *named.values(), None
        if not isinstance(tensors, list) or not hasattr(options, "rootRank"):
            return work
        root = _global(group, options.rootRank)
        self._broadcasts[group.group_name] += 1
        channel = (group.group_name, root, self._broadcasts[group.group_name])
        if root == dist.get_rank():
            message = self._message(tensors[0])
            if message[2] is not None and message[0] <= _MOST_PUBLISHED:
                self._command.post("publish", channel, message)
            else:
                self._command.post("publish", channel, (*message[:2], None))
            return work

        def finish() -> None:
            message = self._ask("fetch", channel)
            if message is not None and message[0] == tensors[0].nbytes and message[2] is not None:
                self._store(tensors[0], message[2])

        return _Message(work, finish)

    def _start_coalescing(self, start: Any, group: Any, *arguments: Any) -> None:
        start(group, *arguments)
        self._coalesced[group.group_name] = []

    def _end_coalescing(self, end: Any, group: Any, *arguments: Any) -> Any:
        work = end(group, *arguments)
        parts = self._coalesced.pop(group.group_name, [])
        return _Message(work, lambda: [part.wait() for part in parts]) if parts else work

    def _started(self, group: Any, message: _Message) -> _Message:
        if group.group_name in self._coalesced:
            self._coalesced[group.group_name].append(message)
        return message

    def _ask(self, *request: Any) -> Any:
        """Wait for another rank; a measured host's clock does not include this time."""
        # Importing this package when the engine is loaded would select a card.
        from habana_frameworks.torch.distributed.hccl._reasons import users_line

        self._engine.pause_host_clock()
        try:
            return self._command.ask(*request, users_line())
        finally:
            self._engine.resume_host_clock()

    def _ready(self) -> float:
        """Return the time on the card's clock at which this rank is ready to exchange a message."""
        now = self._engine.read_clock()
        return float(max(now["host"], now["card"]))

    def _message(self, tensor: torch.Tensor) -> Message:
        values = self._engine.sent_values(tensor) if tensor.device.type == "hpu" else tensor
        return tensor.nbytes, self._ready(), None if values is None else _bytes(values)

    def _store(self, tensor: torch.Tensor, data: bytes | None) -> None:
        values = None
        if data:
            values = torch.frombuffer(bytearray(data), dtype=tensor.dtype).view(tensor.shape)
        if tensor.device.type == "hpu":
            self._engine.receive_values(tensor, values)
        elif values is not None:
            tensor.detach().copy_(values)


class _Message(dist.Work):
    """Work that ends when another rank has sent or received the message."""

    def __init__(self, work: Any, finish: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work
        self._finish: Callable[[], Any] | None = finish

    def wait(self, *timeout: Any) -> bool:
        """Wait for the other rank."""
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        return bool(self._work.wait(*timeout))

    def is_completed(self) -> bool:
        """Wait for the other rank, so that programs that poll can continue."""
        return self.wait()

    def get_future(self) -> Any:
        """Wait for the other rank, and return a completed future."""
        self.wait()
        return self._work.get_future()

    def result(self) -> Any:
        """Wait for the other rank, and return the tensors."""
        self.wait()
        return self._work.result()


def _bound(original: Any, method: Callable[..., Any]) -> Any:
    """Return a method that calls `method` with the original method as an additional argument."""

    @wraps(original)
    def replaced(self: Any, *arguments: Any, **named: Any) -> Any:
        return method(original, self, *arguments, **named)

    return replaced


def _global(group: Any, rank: int) -> int:
    """Convert a rank of a group to the global rank."""
    return dist.get_global_rank(group, rank)


def _bytes(values: torch.Tensor) -> bytes:
    values = values.detach().contiguous()
    return ctypes.string_at(values.data_ptr(), values.nbytes)
