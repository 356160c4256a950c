"""The time of collectives on the clock of the simulated card."""

from __future__ import annotations

import os
import sys
from collections import Counter
from types import FrameType
from typing import Protocol

# How frameworks exchange gradients and weights, by the module that calls a collective. DDP calls
# collectives from C++, during a backward pass.
_EXCHANGES = {
    "torch.autograd": "ddp",
    "torch.distributed.algorithms.ddp_comm_hooks": "ddp",
    "torch.distributed.fsdp": "zero3",
    "deepspeed.runtime.utils": "zero",
    "deepspeed.runtime.zero.stage_1_and_2": "zero",
    "deepspeed.runtime.zero": "zero3",
    "deepspeed.runtime.comm": "zero3",
}
# Modules between the caller of a collective and the backend.
_BETWEEN = (
    "torch._ops",
    "torch.distributed._functional_collectives",
    "torch.distributed.c10d_logger",
    "torch.distributed.distributed_c10d",
    "deepspeed.comm",
    "deepspeed.utils",
    "habana_frameworks.torch.distributed",
    "hpu_magic.simulator.dry_run.messages",
    # Decorators of deprecated functions.
    "typing_extensions",
    "warnings",
)
_PARTS = ("all_gather", "gather", "reduce_scatter", "scatter")
"""Collectives that gather or split a tensor with one part per rank."""


class Source(Protocol):
    """Determines the prices of collectives; see `hpu_magic.estimates.card_time`."""

    def of_collective(
        self,
        kind: str,
        size: int,
        *,
        cards: int,
        stride: int,
        cards_per_machine: int,
        exchange: str,
        starts: bool,
    ) -> tuple[float, float | None, float]:
        """Return the time on the links, the time added to a step, and the bytes sent."""
        ...


class LinkTime:
    """Prices the collectives of this process, and counts the bytes that they send."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._started: set[tuple[str, str]] = set()
        self.sent: Counter[str] = Counter()
        """Bytes that the card sent, by kind of collective."""
        self.last = 0.0
        """Seconds that the last collective or message spends on the links."""

    def reset(self) -> None:
        """Reset the counts, and begin a new step."""
        self.sent.clear()
        self.end_step()

    def end_step(self) -> None:
        """Begin a new step, in which the first collective of each kind takes time to start."""
        self._started.clear()

    def exchange_of_caller(self) -> str:
        """Return how the framework that calls a collective exchanges gradients and weights."""
        return _exchange(sys._getframe().f_back)

    def __call__(
        self,
        name: str,
        size: int,
        tensors: int,
        ranks: int,
        stride: int,
        captured_exchange: str | None = None,
    ) -> tuple[float, float]:
        """Return the time on the links, and the time that the card waits for them.

        The second time is negative if the card waits for the end of the collective only when the
        program does. `size` is the size of this rank's data in bytes, and `tensors` is the number
        of tensors, which are sent one by one. `captured_exchange` is the result of
        `exchange_of_caller` when the collective was captured in an HPU Graph, if it was.
        """
        kind = _kind(name)
        exchange = captured_exchange
        if exchange is None:
            exchange = _exchange(sys._getframe().f_back)
        whole = size * ranks if kind in _PARTS else size
        count = max(tensors, 1)
        links, added = 0.0, 0.0
        for _ in range(count):
            starts = (exchange, kind) not in self._started
            self._started.add((exchange, kind))
            seconds, waits, sent = self._source.of_collective(
                kind,
                whole // count,
                cards=ranks,
                stride=stride,
                cards_per_machine=_cards_per_machine(),
                exchange=exchange,
                starts=starts,
            )
            links += seconds
            added = -1.0 if waits is None else added + waits
            self.sent[kind] += round(sent)
        self.last = links
        return links, added


def _kind(name: str) -> str:
    """Return the kind of collective, such as ``"all_gather"`` for ``"all_gather_into_tensor"``."""
    for suffix in ("_coalesced", "_into_tensor", "_tensor", "_single"):
        name = name.removesuffix(suffix)
    return name


def _cards_per_machine() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE") or 8)


def _exchange(frame: FrameType | None) -> str:
    """Return how the framework that called a collective exchanges gradients and weights."""
    while frame is not None and _module(frame).startswith(_BETWEEN):
        frame = frame.f_back
    if frame is None:
        return "ddp"
    names = [name for name in _EXCHANGES if _module(frame).startswith(name)]
    return _EXCHANGES[max(names, key=len)] if names else ""


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
