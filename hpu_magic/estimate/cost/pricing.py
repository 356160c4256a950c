"""The price of a program: what each of its operations costs on a card, and the whole step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch

from hpu_magic.estimate.cost import links, matrix
from hpu_magic.estimate.cost.constants import FITTED, Constants
from hpu_magic.estimate.cost.hardware import Generation, generation_named
from hpu_magic.estimate.cost.sharding import Sharding, Share
from hpu_magic.estimate.cost.work import Kind, work_of
from hpu_magic.estimate.errors import EstimateError
from hpu_magic.estimate.layout import Layout
from hpu_magic.estimate.tracing.program import Operand, Operation, Phase, Program, Role

MODES = ("eager", "lazy", "graphs", "compile")
PRECISIONS = ("fp32", "bf16", "bf16-mixed", "fp8")


@dataclass(slots=True)
class Cost:
    """Seconds that one operation asks of each part of a card, for all times that it runs."""

    matrix: float = 0.0
    vector: float = 0.0
    memory: float = 0.0
    links: float = 0.0
    launch: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it takes by itself: its parts run side by side, messages and launch do not."""
        return max(self.matrix, self.vector, self.memory) + self.links + self.launch

    @property
    def limit(self) -> str:
        """Name of the part that binds it; empty if it costs nothing."""
        parts = {name: getattr(self, name) for name in self.__slots__}
        most = max(parts, key=parts.__getitem__)
        return most if parts[most] else ""


@dataclass
class Prices:
    """What a step costs."""

    operations: list[Cost] = field(default_factory=list)
    """Parallel to the program's."""
    hidden: float = 0.0
    """Seconds of matrix or vector work that run beside the other, in one run of the program."""
    exchange: float = 0.0
    """Seconds of collectives for gradients and weights that nothing hides."""
    waiting: float = 0.0
    """Seconds in which a card waits for others of its pipeline."""
    seconds: float = 0.0
    """The whole step."""
    by_kind: dict[str, float] = field(default_factory=dict)
    """`seconds` by what they are spent on."""


def price(
    program: Program,
    generation: Generation | str,
    *,
    mode: str = "lazy",
    precision: str = "bf16",
    layout: Layout | None = None,
    accumulate: int = 1,
    constants: Constants = FITTED,
) -> Prices:
    """Return what a step costs.

    Parameters
    ----------
    program : Program
        What one card would run, were there no others: one part of the batch. Types of its tensors
        are those that compute, except that `precision` ``"fp8"`` takes linear layers to 8 bits.
    generation : Generation or str
        The card.
    mode : str
        ``"eager"``, ``"lazy"``, ``"graphs"`` or ``"compile"``.
    precision : str
        ``"fp32"``, ``"bf16"``, ``"bf16-mixed"`` or ``"fp8"``.
    layout : Layout, optional
        What each of several cards has; one card if None.
    accumulate : int
        How often forward and backward run for one step of the optimizer.

    Raises
    ------
    EstimateError
        The generation, the mode or the precision is unknown or does not go with the others, or the
        model cannot be divided so.
    """
    card = generation_named(generation) if isinstance(generation, str) else generation
    if mode not in MODES:
        raise EstimateError(f"mode={mode!r} is unknown: give one of {', '.join(MODES)}.")
    if precision not in PRECISIONS:
        raise EstimateError(
            f"precision={precision!r} is unknown: give one of {', '.join(PRECISIONS)}."
        )
    if precision == "fp8" and not card.has_fp8:
        raise EstimateError(
            f"precision='fp8': {card.name} multiplies no 8-bit numbers; give bf16, or gaudi2 or "
            "gaudi3."
        )
    return _Pricing(program, card, mode, precision, layout or Layout(), constants).step(accumulate)


class _Pricing:
    def __init__(
        self,
        program: Program,
        card: Generation,
        mode: str,
        precision: str,
        layout: Layout,
        constants: Constants,
    ) -> None:
        self._program, self._card, self._layout = program, card, layout
        self._eager, self._fp8 = mode == "eager", precision == "fp8"
        self._constants = constants
        self._bandwidth = card.memory_bandwidth * constants.memory_efficiency[card.name]
        self._instructions = card.vector_flops / 2 * constants.vector_efficiency
        self._trains = any(one.phase is Phase.BACKWARD for one in program.operations)
        self._weights = {
            number for number, one in enumerate(program.storages) if one.role is Role.WEIGHTS
        }

    def step(self, accumulate: int) -> Prices:
        """Return the price of a step."""
        prices = Prices()
        sharding = Sharding(self._program, self._layout.tensor)
        groups = _Groups(self._program, fused=not self._eager)
        for number, operation in enumerate(self._program.operations):
            share = sharding.share(operation, work_of(operation))
            traffic = groups.traffic(number, share.work.kind)
            prices.operations.append(self._cost(operation, share, traffic))
        self._add_up(prices, accumulate)
        return prices

    def _cost(self, operation: Operation, share: Share, traffic: tuple[Operand, ...]) -> Cost:
        work, card, constants = share.work, self._card, self._constants
        if work.kind is Kind.NOTHING:
            return Cost()
        cost = Cost()
        moved: float = sum(self._bytes(one) for one in traffic) / share.divided
        if work.products:
            dtype = self._type(operation)
            width = {"fp8": 1, "bf16": 2, "fp32": 4}[dtype]
            cost.matrix = sum(matrix.seconds(one, card, constants, dtype) for one in work.products)
            streamed = sum(matrix.streamed(one, card, constants, width) for one in work.products)
            if work.kind is Kind.MATRIX:
                moved = max(moved, streamed)
        moved += work.between * constants.scores_to_memory
        if operation.phase is Phase.OPTIMIZER and self._layout.zero:
            moved /= self._layout.data
            work_done = work.instructions / self._layout.data
        else:
            work_done = work.instructions
        cost.vector = work_done / self._instructions * operation.times
        cost.memory = moved / self._bandwidth * operation.times
        cost.matrix *= operation.times
        if self._eager:
            cost.launch = constants.launch_seconds * operation.times
        elif work.products:
            cost.launch = constants.node_seconds * operation.times
        if share.reduced:
            cost.links = links.all_reduce(share.reduced, self._layout.tensor, card, constants)
        return cost

    def _type(self, operation: Operation) -> str:
        left = operation.reads[-1]
        if self._fp8 and len(left.shape) == 2:
            return "fp8"
        if left.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            return "fp8" if self._card.has_fp8 else "bf16"
        return "fp32" if left.dtype is torch.float32 else "bf16"

    def _bytes(self, operand: Operand) -> float:
        if self._fp8 and not self._trains and operand.storage in self._weights:
            return operand.bytes / operand.dtype.itemsize
        return operand.bytes

    def _add_up(self, prices: Prices, accumulate: int) -> None:
        layout, constants = self._layout, self._constants
        by_kind: dict[str, float] = defaultdict(float)
        engine = {"matrix": 0.0, "vector": 0.0}
        backward = 0.0
        for operation, cost in zip(self._program.operations, prices.operations, strict=True):
            times = 1 if operation.phase is Phase.OPTIMIZER else accumulate
            busy: float = max(cost.matrix, cost.vector, cost.memory)
            if busy:
                limit = max(("matrix", "vector", "memory"), key=lambda name: getattr(cost, name))
                by_kind[limit] += busy * times
                if times == accumulate:
                    engine["matrix" if cost.matrix else "vector"] += busy * times
            by_kind["links"] += cost.links * times
            by_kind["launches"] += cost.launch * times
            if operation.phase in (Phase.BACKWARD, Phase.RECOMPUTED):
                backward += cost.seconds
        if not self._eager:
            prices.hidden = constants.overlap * min(engine.values())
        busy_total = sum(by_kind.values())
        for name in by_kind:
            by_kind[name] *= 1 - prices.hidden / busy_total if busy_total else 1.0
        computed = sum(by_kind.values()) / layout.pipeline
        prices.waiting = computed * (layout.pipeline - 1) / accumulate
        prices.exchange = self._exchange()
        for name in by_kind:
            by_kind[name] /= layout.pipeline
        by_kind["links"] += prices.exchange
        if prices.waiting:
            by_kind["waiting"] = prices.waiting
        prices.by_kind = {name: one for name, one in by_kind.items() if one}
        prices.seconds = sum(prices.by_kind.values())

    def _exchange(self) -> float:
        """Return what the exchange of gradients and weights adds to a step."""
        layout, constants = self._layout, self._constants
        if layout.data == 1:
            return 0.0
        stride = layout.tensor * layout.pipeline
        divided = layout.tensor * layout.pipeline
        gradients = self._program.of_role(Role.GRADIENTS) / divided
        weights = self._program.of_role(Role.WEIGHTS) / divided
        if not gradients:
            return 0.0
        one_way = links.scatter(gradients, layout.data, self._card, constants, stride)
        total = 2 * one_way
        if layout.zero == 3:
            gathered = links.scatter(weights, layout.data, self._card, constants, stride)
            total = one_way + 2 * gathered
        return constants.exposed * total


class _Groups:
    """What of an operation's operands passes through memory.

    Without fusion all of it. In a graph, vector operations that follow each other are one kernel:
    what they hand on among themselves stays on the die, and what they read twice is read once.
    """

    def __init__(self, program: Program, *, fused: bool) -> None:
        self._program, self._fused = program, fused
        self._here: set[int] = set()
        self._ends: dict[int, int] = {}
        if fused:
            self._ends = _ends_of_groups(program)

    def traffic(self, number: int, kind: Kind) -> tuple[Operand, ...]:
        """Return the operands that an operation takes from memory or leaves there."""
        operation = self._program.operations[number]
        if kind is Kind.NOTHING:
            return ()
        distinct = {(one.storage, True): one for one in operation.writes}
        distinct |= {(one.storage, False): one for one in operation.reads}
        if not self._fused or kind is not Kind.VECTOR:
            self._here.clear()
            return tuple(distinct.values())
        moved = []
        for (storage, written), one in distinct.items():
            if written:
                if self._program.storages[storage].last_used > self._ends[number]:
                    moved.append(one)
            elif storage not in self._here:
                moved.append(one)
        self._here.update(storage for storage, _ in distinct)
        return tuple(moved)


def _ends_of_groups(program: Program) -> dict[int, int]:
    """Return, for each vector operation, the last operation of those it runs with."""
    ends: dict[int, int] = {}
    end = len(program.operations) - 1
    for number in range(len(program.operations) - 1, -1, -1):
        kind = work_of(program.operations[number]).kind
        if kind is Kind.VECTOR:
            ends[number] = end
        elif kind is not Kind.NOTHING:
            end = number - 1
    return ends
