"""Calculate how long each operation of a program and the entire step take."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hpu_magic.estimates.cost import links
from hpu_magic.estimates.cost.constants import FITTED, Constants
from hpu_magic.estimates.cost.hardware import Generation, generation_named
from hpu_magic.estimates.cost.quantities import Column, Operations, Products, quantities
from hpu_magic.estimates.cost.work import Kind, work_of
from hpu_magic.estimates.deepspeed.configuration import Configuration
from hpu_magic.estimates.deepspeed.gathering import gathers
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.layout import Layout
from hpu_magic.estimates.step_arguments import DTYPES, MODES
from hpu_magic.estimates.tracing.program import Program, Role

SECONDS_PER_OPERATOR = 0.3e-3
"""Time to compile one operator.

The log of a Gaudi2 server reports 28 s for 72 graphs of a model with 8 billion parameters, one pass
of which runs 1,300 operators.
"""

_GATHERS = 3  # stage of ZeRO
_EXCHANGES = ("ddp", "zero", "zero", "zero3")
"""Names of the constants for ZeRO stages 0 to 3."""

COMPILATION_BAND = 1 / 4, 4.0
"""An assumption: the only log is from inference and mentions neither the host nor the release."""


@dataclass(slots=True)
class OperationCost:
    """Time in seconds that an operation takes on each part of a card, summed over all its runs."""

    matrix: float = 0.0
    vector: float = 0.0
    memory: float = 0.0
    links: float = 0.0
    launch: float = 0.0

    @property
    def seconds(self) -> float:
        """Time of the operation; engines run in parallel, but communication and launches do not."""
        return max(self.matrix, self.vector, self.memory) + self.links + self.launch

    @property
    def limit(self) -> str:
        """Name of the slowest part of the card; empty if the operation takes no time."""
        parts = {name: getattr(self, name) for name in self.__slots__}
        most = max(parts, key=parts.__getitem__)
        return most if parts[most] else ""


@dataclass
class Prices:
    """The time of a step and of its operations."""

    operations: list[OperationCost] = field(default_factory=list)
    """The cost of each operation in one run of the program."""
    seconds: float = 0.0
    """Duration of the step."""
    by_kind: dict[str, float] = field(default_factory=dict)
    """`seconds`, broken down by bottleneck: ``"matrix"``, ``"vector"``, ``"memory"``, ``"links"``,
    ``"launches"``, and ``"waiting"``, which is time spent waiting for other cards of a pipeline."""
    exchange: float = 0.0
    """The part of `seconds` that cards spend exchanging gradients and weights."""


@dataclass(frozen=True)
class Workload:
    """The work of a step on one card, before the fitted constants are applied."""

    card: Generation
    layout: Layout
    mode: str
    accumulate: int
    operations: Operations
    products: Products
    gradients: int
    """Size in bytes of the gradients that are summed across cards, without those of experts."""
    gradient_tensors: int
    weights: int
    """Size in bytes of the weights that ZeRO stage 3 gathers, without those of experts."""
    gradients_of_experts: int = 0
    weights_of_experts: int = 0
    gathers: float = 2.0
    """How often ZeRO stage 3 gathers the weights for a forward and a backward pass."""

    @property
    def eager(self) -> bool:
        """Whether the operators of the model are launched one by one."""
        return self.mode == "eager"


@dataclass(frozen=True)
class Columns:
    """Time of each operation in seconds, with one column for each field of `OperationCost`."""

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
    dtype: str = "bf16",
    layout: Layout | None = None,
    accumulate: int = 1,
    fused_attention: bool = False,
    deepspeed: Configuration | None = None,
    constants: Constants = FITTED,
) -> Prices:
    """Return the time of a step and of its operations.

    The program is traced for a single card and its share of the batch. The dtypes of the program's
    tensors are the dtypes of the computations, except that linear layers run in FP8 if
    ``dtype="fp8"`` is passed. ``accumulate`` is the number of forward and backward passes per
    optimizer step. If ``fused_attention`` is true, the vendor's operator replaces PyTorch's
    attention. ``deepspeed`` is DeepSpeed's configuration, and None means its defaults.

    Raises `EstimateError` if the generation, mode or dtype is unknown, if they are incompatible
    with each other, or if the layout is not suitable for the model.
    """
    workload = workload_of(
        program,
        generation,
        mode=mode,
        dtype=dtype,
        layout=layout or Layout(),
        accumulate=accumulate,
        fused_attention=fused_attention,
        deepspeed=deepspeed,
    )
    columns = seconds_of(workload, constants)
    prices = add_up(workload, columns, constants)
    rows = zip(*(getattr(columns, name).tolist() for name in OperationCost.__slots__), strict=True)
    prices.operations = [OperationCost(*row) for row in rows]
    return prices


def workload_of(
    program: Program,
    generation: Generation | str,
    *,
    mode: str,
    dtype: str,
    layout: Layout,
    accumulate: int = 1,
    fused_attention: bool = False,
    deepspeed: Configuration | None = None,
) -> Workload:
    """Return the work of a step on a card; takes the same arguments as `price`."""
    card = generation_named(generation) if isinstance(generation, str) else generation
    if mode not in MODES:
        raise EstimateError(f"mode={mode!r} is unknown: use one of {', '.join(MODES)}.")
    if dtype not in DTYPES:
        raise EstimateError(f"dtype={dtype!r} is unknown: use one of {', '.join(DTYPES)}.")
    if dtype == "fp8" and not card.has_fp8:
        raise EstimateError(
            f"dtype='fp8' is not supported by {card.name}: use bf16, gaudi2 or gaudi3."
        )
    operations, products = quantities(
        program,
        card,
        mode=mode,
        fp8=dtype == "fp8",
        layout=layout,
        fused_attention=fused_attention,
    )
    return Workload(
        card,
        layout,
        mode,
        accumulate,
        operations,
        products,
        _bytes_of(program, layout, Role.GRADIENTS, of_experts=False),
        sum(each.role is Role.GRADIENTS for each in program.storages),
        _bytes_of(program, layout, Role.WEIGHTS, of_experts=False),
        _bytes_of(program, layout, Role.GRADIENTS, of_experts=True),
        _bytes_of(program, layout, Role.WEIGHTS, of_experts=True),
        gathers=_gathers(program, layout, deepspeed),
    )


def _gathers(program: Program, layout: Layout, deepspeed: Configuration | None) -> float:
    """Return how often the weights are gathered; DeepSpeed keeps weights that are used again soon.

    FSDP gathers them for both passes.
    """
    if layout.zero < _GATHERS or not layout.in_float32:
        return 2.0
    return gathers(program, deepspeed or Configuration(), layout.data)


def _bytes_of(program: Program, layout: Layout, role: Role, *, of_experts: bool) -> int:
    found = (each for each in program.storages if each.of_experts is of_experts)
    total = sum(each.bytes for each in found if each.role is role)
    return total // (layout.tensor * layout.pipeline)


def seconds_of(workload: Workload, constants: Constants) -> Columns:
    """Return the time in seconds that each operation takes in one run of the program."""
    card, operations = workload.card, workload.operations
    bandwidth = card.memory_bandwidth * constants.memory_efficiency[card.name]
    moved = np.maximum(operations.moved, _streamed(workload, constants))
    moved += operations.spared * (1 - constants.fusion) + operations.scores
    # Each instruction multiplies and adds, and the peak rate counts this as two operations.
    rate = card.vector_flops / 2 * constants.vector_efficiency
    matrix = operations.arrays / constants.matrix_efficiency[card.name]
    vector = operations.instructions / rate
    thin_matrix = operations.thin_arrays / constants.matrix_efficiency[card.name]
    thin_vector = operations.thin_instructions / rate
    by_arrays = thin_matrix < thin_vector
    eager = 1.0 if workload.eager else operations.eager
    launch = constants.launch_seconds * operations.operators * eager
    launch += constants.node_seconds * operations.kernels * (1 - eager)
    return Columns(
        matrix=matrix + np.where(by_arrays, thin_matrix, 0.0),
        vector=vector + np.where(by_arrays, 0.0, thin_vector),
        memory=moved / bandwidth,
        links=_reduced(workload, constants) + _routed(workload, constants),
        launch=launch,
    )


def _streamed(workload: Workload, constants: Constants) -> Column:
    """Return the memory traffic of each operation's matmuls, in bytes.

    Operands are read once for each block of the output.
    """
    products = workload.products
    left = products.left * np.maximum(products.columns / constants.block, 1.0)
    right = products.right * np.maximum(products.rows / constants.block, 1.0)
    count = len(workload.operations.moved)
    total = np.bincount(products.owner, left + right + products.result, minlength=count)
    return total.astype(np.float64)


def _reduced(workload: Workload, constants: Constants) -> Column:
    partners, reduced = workload.layout.tensor, workload.operations.reduced
    if partners == 1:
        return np.zeros_like(reduced)
    start = links.all_reduce(0, partners, workload.card, constants)
    gigabyte = links.all_reduce(1e9, partners, workload.card, constants) - start
    starts = np.where(reduced > 0, start * workload.operations.operators, 0.0)
    return starts + reduced * gigabyte / 1e9


def _routed(workload: Workload, constants: Constants) -> Column:
    """Return the time in seconds that cards need to exchange tokens for their experts."""
    layout, operations = workload.layout, workload.operations
    if layout.experts == 1:
        return np.zeros_like(operations.routed)
    stride = layout.tensor * layout.pipeline

    def seconds(size: float) -> float:
        return links.all_to_all(size, layout.experts, workload.card, constants, stride)

    start = seconds(0.0)
    return operations.exchanges * start + operations.routed * (seconds(1e9) - start) / 1e9


def add_up(workload: Workload, columns: Columns, constants: Constants) -> Prices:
    """Add up the times of a step's operations; the result does not list the operations."""
    operations, layout = workload.operations, workload.layout
    times = np.where(operations.optimizer > 0, 1.0, float(workload.accumulate))
    engines = np.stack([columns.matrix, columns.vector, columns.memory])
    busy, binds = engines.max(axis=0) * times, engines.argmax(axis=0)
    total = float(busy.sum())
    worked = total if workload.eager else _in_graphs(operations, engines, times)
    shown = worked / total / layout.pipeline if total else 0.0
    by_kind = {
        name: float(busy[binds == number].sum()) * shown
        for number, name in enumerate(("matrix", "vector", "memory"))
    }
    by_kind["links"] = float((columns.links * times).sum()) / layout.pipeline
    by_kind["launches"] = float((columns.launch * times).sum()) / layout.pipeline
    waiting = sum(by_kind.values()) * (layout.pipeline - 1) / workload.accumulate
    by_kind["waiting"] = waiting
    exchange = exchanged(workload, constants)
    by_kind["links"] += exchange
    by_kind = {name: seconds for name, seconds in by_kind.items() if seconds}
    return Prices(seconds=sum(by_kind.values()), by_kind=by_kind, exchange=exchange)


def _in_graphs(operations: Operations, engines: Column, times: Column) -> float:
    """Return the time of a step's graphs, each of which uses all engines in parallel.

    According to the fit, real graphs achieve 98 to 100 % of the speed of fully parallel engines.
    Gradients are exchanged in the last pass of a step, so only its graphs are divided.
    """
    earlier = _in_parallel(engines * (times - 1), operations.graph)
    return _in_parallel(engines, operations.part) + earlier


def _in_parallel(engines: Column, graphs: Column) -> float:
    numbers = graphs.astype(np.int64)
    return float(np.stack([np.bincount(numbers, engine) for engine in engines]).max(axis=0).sum())


def exchanged(workload: Workload, constants: Constants) -> float:
    """Return the time in seconds that exchanging gradients and weights adds to a step."""
    layout = workload.layout
    seconds = 0.0
    for gradients, weights, of_experts in (
        (workload.gradients, workload.weights, False),
        (workload.gradients_of_experts, workload.weights_of_experts, True),
    ):
        cards = layout.replicas(of_experts=of_experts)
        if cards == 1 or not gradients:
            continue
        stride = layout.tensor * layout.pipeline * (layout.data // cards)
        one_way = links.scatter(gradients, cards, workload.card, constants, stride)
        if layout.zero < _GATHERS:
            seconds += 2 * one_way
            continue
        gathered = links.scatter(weights, cards, workload.card, constants, stride)
        seconds += one_way + workload.gathers * gathered * workload.accumulate
    seconds *= constants.exchange[_EXCHANGES[layout.zero]]
    if seconds and layout.zero == 0:
        seconds += _copies(workload, constants)
    return seconds


def _copies(workload: Workload, constants: Constants) -> float:
    """Return the time in seconds that DDP needs to copy gradients to its buckets and back.

    DDP divides gradients while it copies them to the buckets, also if they are views of buckets.
    In lazy mode, the copies are part of the kernels of graphs. DDP is not compiled.
    """
    bandwidth = workload.card.memory_bandwidth * constants.memory_efficiency[workload.card.name]
    launched = workload.mode in ("eager", "compile")
    launch = constants.launch_seconds if launched else 0.0
    gradients = workload.gradients
    if workload.layout.replicas(of_experts=True) > 1:
        gradients += workload.gradients_of_experts
    copies = 1 if workload.layout.buckets.views else 2
    return copies * (launch * workload.gradient_tensors + 2 * gradients / bandwidth)


def compile_seconds(program: Program, mode: str) -> float:
    """Return the time to compile a program's graph, in seconds; 0 in eager mode.

    In eager mode, each operator has its own small graph, and the compilation times of these graphs
    are not published.
    """
    if mode == "eager":
        return 0.0
    operators = sum(
        each.times for each in program.operations if work_of(each).kind is not Kind.NOTHING
    )
    return SECONDS_PER_OPERATOR * operators
