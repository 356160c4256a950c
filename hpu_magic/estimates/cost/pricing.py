"""The price of a program: what each of its operations costs on a card, and the whole step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hpu_magic.estimates.cost import links
from hpu_magic.estimates.cost.constants import BANDS, FITTED, Constants
from hpu_magic.estimates.cost.hardware import Generation, generation_named
from hpu_magic.estimates.cost.quantities import Column, Operations, Products, quantities
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.layout import Layout
from hpu_magic.estimates.tracing.program import Phase, Program, Role

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
        """How long it takes by itself: engines run side by side, messages and launch do not."""
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
    """Parallel to the program's, for one run of it."""
    seconds: float = 0.0
    """The whole step."""
    by_kind: dict[str, float] = field(default_factory=dict)
    """`seconds` by what binds: ``"matrix"``, ``"vector"``, ``"memory"``, ``"links"``,
    ``"launches"``, and ``"waiting"`` for other cards of a pipeline."""
    band: tuple[float, float] = (0.5, 2.0)
    """Low and high factor of `seconds` between which nine measurements of ten are expected."""
    exchange: float = 0.0
    """Seconds that the exchange of gradients and weights among cards takes of `seconds`."""


@dataclass(frozen=True)
class Step:
    """What a step asks of a card, before any constant: what prices are made of."""

    card: Generation
    layout: Layout
    eager: bool
    accumulate: int
    operations: Operations
    products: Products
    gradients: int
    """Bytes that are summed over the cards."""
    weights: int
    """Bytes that ZeRO's third stage gathers."""


@dataclass(frozen=True)
class Columns:
    """Seconds of each operation, as columns; the fields of `Cost`."""

    matrix: Column
    vector: Column
    memory: Column
    links: Column
    launch: Column


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
    constants : Constants
        What is fitted.

    Raises
    ------
    EstimateError
        The generation, the mode or the precision is unknown or does not go with the others, or the
        model cannot be divided so.
    """
    asked = step_of(
        program,
        generation,
        mode=mode,
        precision=precision,
        layout=layout or Layout(),
        accumulate=accumulate,
    )
    columns = seconds_of(asked, constants)
    prices = add_up(asked, columns, constants)
    rows = zip(*(getattr(columns, name).tolist() for name in Cost.__slots__), strict=True)
    prices.operations = [Cost(*row) for row in rows]
    trains = any(one.phase is Phase.BACKWARD for one in program.operations)
    prices.band = _band(asked, trains, mode, precision)
    return prices


def _band(step: Step, trains: bool, mode: str, precision: str) -> tuple[float, float]:
    """Return the band of a kind of work; it is wider where little or nothing was measured."""
    known = precision != "fp32" and (not trains or step.layout.cards <= 64)
    if trains and (mode == "compile" and step.layout.zero == 3):
        known = False
    kind = ("training" if trains else "batches") if known else "unmeasured"
    return 1 / BANDS[kind], BANDS[kind]


def step_of(
    program: Program,
    generation: Generation | str,
    *,
    mode: str,
    precision: str,
    layout: Layout,
    accumulate: int = 1,
) -> Step:
    """Return what a step asks of a card; arguments and errors as those of `price`."""
    card = generation_named(generation) if isinstance(generation, str) else generation
    if mode not in MODES:
        raise EstimateError(f"mode={mode!r} is unknown: give one of {', '.join(MODES)}.")
    if precision not in PRECISIONS:
        raise EstimateError(f"dtype={precision!r} is unknown: give one of {', '.join(PRECISIONS)}.")
    if precision == "fp8" and not card.has_fp8:
        raise EstimateError(
            f"dtype='fp8': {card.name} multiplies no 8-bit numbers; give bf16, or gaudi2 or gaudi3."
        )
    asked, products = quantities(
        program, card, fused=mode != "eager", fp8=precision == "fp8", layout=layout
    )
    divided = layout.tensor * layout.pipeline
    return Step(
        card,
        layout,
        mode == "eager",
        accumulate,
        asked,
        products,
        program.of_role(Role.GRADIENTS) // divided,
        program.of_role(Role.WEIGHTS) // divided,
    )


def seconds_of(step: Step, constants: Constants) -> Columns:
    """Return the seconds of each operation of one run of the program."""
    card, asked = step.card, step.operations
    bandwidth = card.memory_bandwidth * constants.memory_efficiency[card.name]
    moved = np.maximum(asked.moved, _streamed(step, constants))
    moved += asked.spared * (1 - constants.fusion) + asked.scores
    # Two numbers of the peak are one instruction: a multiplication and an addition.
    rate = card.vector_flops / 2 * constants.vector_efficiency
    matrix = asked.arrays / constants.matrix_efficiency[card.name]
    vector = asked.instructions / rate
    thin_matrix = asked.thin_arrays / constants.matrix_efficiency[card.name]
    thin_vector = asked.thin_instructions / rate
    by_arrays = thin_matrix < thin_vector
    if step.eager:
        launch = constants.launch_seconds * asked.operators
    else:
        launch = constants.node_seconds * asked.kernels
    return Columns(
        matrix=matrix + np.where(by_arrays, thin_matrix, 0.0),
        vector=vector + np.where(by_arrays, 0.0, thin_vector),
        memory=moved / bandwidth,
        links=_reduced(step, constants),
        launch=launch,
    )


def _streamed(step: Step, constants: Constants) -> Column:
    """Return the bytes that memory gives and takes for products, by operation.

    Operands are read once for each block of the output that is made at a time.
    """
    products = step.products
    left = products.left * np.maximum(products.columns / constants.block, 1.0)
    right = products.right * np.maximum(products.rows / constants.block, 1.0)
    total = np.zeros_like(step.operations.moved)
    np.add.at(total, products.owner, left + right + products.result)
    return total


def _reduced(step: Step, constants: Constants) -> Column:
    partners, reduced = step.layout.tensor, step.operations.reduced
    if partners == 1:
        return np.zeros_like(reduced)
    one = links.all_reduce(0, partners, step.card, constants)
    byte = links.all_reduce(1e9, partners, step.card, constants) - one
    return np.where(reduced > 0, one * step.operations.operators, 0.0) + reduced * byte / 1e9


def add_up(step: Step, columns: Columns, constants: Constants) -> Prices:
    """Return the step's seconds from those of its operations; the list of these is left empty."""
    asked, layout = step.operations, step.layout
    times = np.where(asked.optimizer > 0, 1.0, float(step.accumulate))
    engines = np.stack([columns.matrix, columns.vector, columns.memory])
    busy, binds = engines.max(axis=0) * times, engines.argmax(axis=0)
    total = float(busy.sum())
    worked = total if step.eager else _side_by_side(engines * times, asked.optimizer > 0)
    shown = worked / total / layout.pipeline if total else 0.0
    by_kind = {
        name: float(busy[binds == number].sum()) * shown
        for number, name in enumerate(("matrix", "vector", "memory"))
    }
    by_kind["links"] = float((columns.links * times).sum()) / layout.pipeline
    by_kind["launches"] = float((columns.launch * times).sum()) / layout.pipeline
    waiting = sum(by_kind.values()) * (layout.pipeline - 1) / step.accumulate
    by_kind["waiting"] = waiting
    exchange = _exchanged(step, constants)
    by_kind["links"] += exchange
    by_kind = {name: one for name, one in by_kind.items() if one}
    return Prices(seconds=sum(by_kind.values()), by_kind=by_kind, exchange=exchange)


def _side_by_side(engines: Column, optimizer: npt.NDArray[np.bool_]) -> float:
    """Return the seconds of a graph, whose engines work side by side; the optimizer's is another.

    Fitted, the share of that which is reached is 0.98 to 1.
    """
    return sum(float(engines[:, wanted].sum(axis=1).max()) for wanted in (optimizer, ~optimizer))


def _exchanged(step: Step, constants: Constants) -> float:
    """Return what the exchange of gradients and weights adds to a step."""
    layout, card = step.layout, step.card
    if layout.data == 1 or not step.gradients:
        return 0.0
    stride = layout.tensor * layout.pipeline
    one_way = links.scatter(step.gradients, layout.data, card, constants, stride)
    times = constants.exchange["zero" if layout.zero else "ddp"]
    if layout.zero < 3:
        return times * 2 * one_way
    gathered = links.scatter(step.weights, layout.data, card, constants, stride)
    return times * (one_way + 2 * gathered * step.accumulate)
