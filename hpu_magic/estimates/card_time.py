"""Calculate the estimated times of operators for the simulated card's clock.

The simulator passes the operators that ran, and the cost model calculates their time in the same
way as in estimates. This module does not import the simulator; `hpu_magic.CARD_TIME_PRICES` names
its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from hpu_magic.estimates.cost import links
from hpu_magic.estimates.cost.bands import band_of_training
from hpu_magic.estimates.cost.constants import FITTED
from hpu_magic.estimates.cost.hardware import generation_named
from hpu_magic.estimates.cost.pricing import OperationCost, Prices, compile_seconds, price
from hpu_magic.estimates.cost.work import Kind, work_of
from hpu_magic.estimates.layout import Layout
from hpu_magic.estimates.tracing.program import (
    Operand,
    Operation,
    Phase,
    Program,
    Role,
    Storage,
    card_bytes,
    operator_named,
)
from hpu_magic.estimates.tracing.routing import count_choices

_ENGINES = ("matrix", "vector", "memory")
_Operand = tuple[int, tuple[int, ...], torch.dtype, int]
"""Index of the storage, shape, dtype, and number of elements that it covers in the storage."""
_Operation = tuple[
    str, str, tuple[_Operand, ...], tuple[_Operand, ...], bool, tuple[object, ...], int
]
"""Operator, overload, operands that are read, operands that are written, whether it is a view,
arguments other than tensors, and bytes that are copied from or to the host."""
_Storage = tuple[int, torch.dtype, bool, bool]
"""Size in bytes, dtype, whether it is used later, and whether it is a weight."""
_Price = tuple[float, float, float, list[float], list[list[float]]]
"""Seconds on the card, on the host and for compilation, and seconds for each part of the card. For
a graph, also the time that each operator adds, listed under the part of the card that limits the
operator."""


class CardPrices:
    """Returns the time of operators and graphs on a card, such as ``"gaudi2"``."""

    def __init__(self, card: str) -> None:
        self._card = generation_named(card)
        self.in_float32 = False
        """Whether float32 matrices were multiplied."""
        self._cards = 1

    @property
    def band(self) -> tuple[float, float]:
        """Range in which a measurement is expected, in multiples of the estimated time.

        Estimates of training have the widest band of all measured kinds of work. Float32 products
        were not measured.
        """
        layout = Layout(cards=self._cards)
        band = band_of_training(layout, "eager", "fp32" if self.in_float32 else "bf16")
        return band.low, band.high

    def __call__(
        self, operations: Sequence[_Operation], storages: Sequence[_Storage], graph: bool
    ) -> _Price:
        """Return the time of an operator, or of operators that run as one graph."""
        program = _program(operations, storages)
        self.in_float32 |= any(map(_multiplies_float32, program.operations))
        prices = price(program, self._card, mode="lazy" if graph else "eager")
        copies = [each[6] / self._card.host_bandwidth for each in operations]
        copied = sum(copies)
        parts = [
            sum(getattr(cost, part) for cost in prices.operations)
            for part in OperationCost.__slots__
        ]
        parts[OperationCost.__slots__.index("links")] += copied
        # The time that the host needs to launch a graph is not published.
        launch = 0.0 if graph else sum(each.launch for each in prices.operations)
        compilation = compile_seconds(program, "lazy" if graph else "eager")
        limits = _limits(prices, copies) if graph else []
        return prices.seconds + copied, launch, compilation, parts, limits

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
        """Return the time of a collective in a group of cards.

        Parameters
        ----------
        kind : str
            One of `links.SECONDS`.
        size : int
            Size in bytes of the complete tensor.
        cards, stride, cards_per_machine : int
            Number of cards in the group, distance between neighboring ones, and number of cards in
            each machine.
        exchange : str
            How the framework that calls the collective exchanges gradients and weights: ``"ddp"``,
            ``"zero"`` or ``"zero3"``; empty if the program calls it directly.
        starts : bool
            Whether this is the first collective of its kind in a step. The fitted time of an
            exchange already includes the time to start all later collectives.

        Returns
        -------
        seconds, added, sent : float
            Time on the links, time added to a step, and bytes that each card sends. ``added`` is
            None if ``exchange`` is empty, because it depends on when the program waits.
        """
        self._cards = max(self._cards, cards)
        card = replace(self._card, cards_per_machine=cards_per_machine)
        if exchange == "zero" and kind in ("all_reduce", "reduce"):
            # DeepSpeed reduces unsharded gradients, which the fitted factor takes into account.
            kind = "reduce_scatter"
        constants = FITTED if starts or not exchange else replace(FITTED, link_latency=0.0)
        seconds = links.SECONDS[kind](size, cards, card, constants, stride)
        added = FITTED.exchange[exchange] * seconds if exchange else None
        return seconds, added, links.bytes_sent(kind, size, cards)


def _limits(prices: Prices, copies: Sequence[float]) -> list[list[float]]:
    """Return the time that each operator adds to its graph, for each part of the card.

    The engines of a graph run in parallel, so the graph takes less time than the sum of its
    operators. ``copies`` contains the time that each operator spends copying data from the host.
    """
    costs = prices.operations
    outside = sum(each.launch + each.links for each in costs)
    busy = sum(max(each.matrix, each.vector, each.memory) for each in costs)
    scale = (prices.seconds - outside) / busy if busy else 0.0
    found = []
    for cost, copied in zip(costs, copies, strict=True):
        engines = {name: getattr(cost, name) for name in _ENGINES}
        slowest = max(engines, key=engines.__getitem__)
        times = {slowest: engines[slowest] * scale, "links": cost.links + copied}
        times["launch"] = cost.launch
        found.append([times.get(name, 0.0) for name in OperationCost.__slots__])
    return found


def _program(operations: Sequence[_Operation], storages: Sequence[_Storage]) -> Program:
    program = Program()
    for size, dtype, kept, weight in storages:
        program.storages.append(
            Storage(
                card_bytes(dtype, size // dtype.itemsize),
                Role.WEIGHTS if weight else Role.TEMPORARY,
                dtype=dtype,
                freed=None if kept else len(operations),
            )
        )
    seen: set[int] = set()
    for number, (name, overload, *operands, is_view, arguments, _) in enumerate(operations):
        reads, writes = (tuple(map(_operand, each)) for each in operands)
        seen.update(operand.storage for operand in reads)
        for operand in writes:
            if operand.storage not in seen:
                seen.add(operand.storage)
                program.storages[operand.storage].born = number
        if not is_view:
            for operand in (*reads, *writes):
                program.storages[operand.storage].last_used = number
        operator = operator_named(name, overload or "default")
        program.operations.append(
            Operation(operator, reads, writes, is_view, "", Phase.FORWARD, arguments)
        )
    count_choices(program)
    return program


def _operand(described: _Operand) -> Operand:
    storage, shape, dtype, elements = described
    return Operand(storage, shape, dtype, card_bytes(dtype, elements))


def _multiplies_float32(operation: Operation) -> bool:
    products = work_of(operation).kind in (Kind.MATRIX, Kind.ATTENTION)
    return products and operation.reads[0].dtype is torch.float32
