"""The amount of work that each operation performs on one card, as one array per quantity."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil

import numpy as np
import numpy.typing as npt
import torch

from hpu_magic.estimates.cost.attention import factors_of
from hpu_magic.estimates.cost.fusion import traffic
from hpu_magic.estimates.cost.graphs import graphs_of
from hpu_magic.estimates.cost.hardware import Generation
from hpu_magic.estimates.cost.products import Product, matrices_of, name_of
from hpu_magic.estimates.cost.sharding import Sharding, Share
from hpu_magic.estimates.cost.work import Kind, Work, work_of
from hpu_magic.estimates.layout import Layout
from hpu_magic.estimates.tracing.program import Operand, Operation, Phase, Program, Role

Column = npt.NDArray[np.float64]
_WIDTHS = {"fp8": 1, "bf16": 2, "fp32": 4}
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@dataclass(frozen=True)
class Operations:
    """Arrays with one value per operation, multiplied by the number of times the operation runs."""

    arrays: Column
    """Time on the matrix engines at their peak rate; arrays that are not full increase it."""
    instructions: Column
    """Number of vector instructions, each of which processes one bf16 element."""
    thin_arrays: Column
    """Like `arrays`, but for very narrow matmuls, which the vector processors can also compute."""
    thin_instructions: Column
    """Like `instructions`, but for very narrow matmuls."""
    moved: Column
    """Size in bytes of the operands that are read from or written to memory."""
    spared: Column
    """Bytes of the operands that stay on the die if the compiler fuses as much as possible."""
    scores: Column
    """Size in bytes of attention scores, counted once for each read and write."""
    reduced: Column
    """Size in bytes of the operation's all-reduce in a tensor-parallel group."""
    routed: Column
    """Size in bytes of the tokens that are exchanged with the cards of other experts."""
    exchanges: Column
    """Number of these exchanges."""
    operators: Column
    """Number of times that the operation runs; 0 for views."""
    kernels: Column
    """Number of graph kernels that start with this operation and do not multiply prefetched
    weights."""
    eager: Column
    """1 for operations that run in eager mode between compiled graphs."""
    graph: Column
    """Number of the graph that contains the operation, without the divisions by collectives."""
    part: Column
    """Number of the part of this graph between two collectives."""
    optimizer: Column
    """1 for operations of the optimizer, which runs once per step."""


@dataclass(frozen=True)
class Products:
    """Arrays with one value for each matmul in a linear layer or convolution."""

    owner: npt.NDArray[np.int64]
    """Index of the operation that contains the matmul."""
    rows: Column
    columns: Column
    left: Column
    """Size in bytes of the left operand, which provides the rows."""
    right: Column
    """Size in bytes of the right operand, which provides the columns."""
    result: Column
    """Size in bytes of the result."""


def quantities(
    program: Program,
    card: Generation,
    *,
    mode: str,
    fp8: bool,
    layout: Layout,
    fused_attention: bool = False,
) -> tuple[Operations, Products]:
    """Return the work of a program on one card.

    Unless ``mode`` is eager, the operations run in graphs. If ``fp8`` is true, linear layers use
    FP8. If ``fused_attention`` is true, the vendor's operator replaces PyTorch's attention.
    Raises `EstimateError` if the layout is not suitable for the model.
    """
    return _Reader(program, card, fp8, layout).read(mode, fused_attention)


class _Reader:
    def __init__(self, program: Program, card: Generation, fp8: bool, layout: Layout) -> None:
        self._program, self._card = program, card
        self._fp8, self._layout = fp8, layout
        self._trains = any(each.phase is Phase.BACKWARD for each in program.operations)
        self._weights = {
            number for number, each in enumerate(program.storages) if each.role is Role.WEIGHTS
        }
        self._products: list[tuple[float, ...]] = []
        self._from_matrix: set[int] = set()  # storages last written by the matrix engines

    def read(self, mode: str, fused_attention: bool) -> tuple[Operations, Products]:
        program = self._program
        works = [
            work_of(operation, fused_attention=fused_attention) for operation in program.operations
        ]
        reduced = self._reduced(works) if mode == "compile" else frozenset()
        graphs = graphs_of(program, mode, self._layout, reduced)
        kinds = [work.kind for work in works]
        moved = list(traffic(program, kinds, None if mode == "eager" else graphs.parts))
        sharding = Sharding(program, self._layout.tensor)
        shares = [
            sharding.share(operation, Work(Kind.NOTHING) if found.omitted else work)
            for operation, work, found in zip(program.operations, works, moved, strict=True)
        ]
        sharding.check_layers()
        if not self._trains:
            shares = sharding.complete_results(shares)
        rows = []
        for number, (operation, share, found) in enumerate(
            zip(program.operations, shares, moved, strict=True)
        ):
            sizes = [self._size(each, share) for each in (found.moved, found.spared)]
            place = number in graphs.eager, graphs.whole[number], graphs.parts[number]
            rows.append(self._row(number, operation, share, sizes, found.kernels, place))
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(fields(Operations))).T
        each = np.array(self._products, dtype=np.float64).reshape(len(self._products), 6).T
        return Operations(*table), Products(each[0].astype(np.int64), *each[1:])

    def _reduced(self, works: list[Work]) -> frozenset[str]:
        """Return the paths of the modules whose results an all-reduce adds."""
        sharding = Sharding(self._program, self._layout.tensor)
        for operation, work in zip(self._program.operations, works, strict=True):
            sharding.share(operation, work)
        return frozenset(sharding.reduced)

    def _size(self, operands: tuple[Operand, ...], share: Share) -> float:
        return (
            sum(
                operand.bytes / (operand.dtype.itemsize if self._in_8_bits(operand.storage) else 1)
                for operand in operands
            )
            / share.divided
        )

    def _in_8_bits(self, storage: int) -> bool:
        """Return whether a storage holds FP8 weights; training does not store weights in FP8."""
        return self._fp8 and not self._trains and storage in self._weights

    def _row(
        self,
        number: int,
        operation: Operation,
        share: Share,
        sizes: list[float],
        kernels: int,
        place: tuple[bool, int, int],
    ) -> tuple[float, ...]:
        work, times = share.work, operation.times
        if work.kind is Kind.NOTHING:
            return (0.0,) * len(fields(Operations))
        instructions, arrays, cast = work.instructions, 0.0, 0.0
        thin_instructions, thin_arrays = 0.0, 0.0
        if work.products:
            dtype = self._type(operation, work)
            for product in work.products:
                by_arrays = array_seconds(product, self._card, dtype)
                if by_arrays > product.flops / self._card.vector_flops:
                    thin_arrays += by_arrays
                    thin_instructions += product.flops / 2
                else:
                    arrays += by_arrays
            if work.kind is Kind.MATRIX:
                cast = self._cast(operation, work) if dtype == "fp8" else 0.0
                sizes[0] += 3 * cast  # each cast reads two bytes and writes one byte
                instructions += cast
                self._stream(number, work, _WIDTHS[dtype])
        optimizer = operation.phase is Phase.OPTIMIZER
        if optimizer and self._layout.zero:
            replicas = self._replicas(operation)
            sizes = [each / replicas for each in sizes]
            instructions /= replicas
        return (
            arrays * times,
            instructions * times,
            thin_arrays * times,
            thin_instructions * times,
            *(each * times for each in sizes),
            work.between * times,
            share.reduced * times,
            sum(operation.routed) * times,
            len(operation.routed) * times,
            times,
            self._kernels(operation, work, kernels, bool(cast)),
            *place,
            optimizer,
        )

    def _replicas(self, operation: Operation) -> int:
        """Return the number of cards that have the same weights and process different data."""
        storages = self._program.storages
        of_experts = any(storages[each.storage].of_experts for each in operation.writes)
        return self._layout.replicas(of_experts=of_experts)

    def _kernels(self, operation: Operation, work: Work, begun: int, casts: bool) -> int:
        """Return the number of kernels that start and do not multiply prefetched weights.

        The vector processors calculate the softmax between the matmuls of attention. Casts to FP8
        are part of the kernel that calculated the values, unless that kernel is a matmul.
        """
        storages = [operand.storage for operand in operation.writes]
        if work.kind is Kind.ATTENTION:
            self._from_matrix.update(storages)
            return begun * (len(work.products) + 1)
        if work.kind is not Kind.MATRIX:
            self._from_matrix.difference_update(storages)
            return begun
        casts_result = casts and matrices_of(operation)[0].storage in self._from_matrix
        self._from_matrix.update(storages)
        return 0 if self._prefetched(operation) and not casts_result else begun

    def _prefetched(self, operation: Operation) -> bool:
        """Return whether the previous kernel prefetches the weights, hiding the start-up time."""
        return any(operand.storage in self._weights for operand in operation.reads)

    def _cast(self, operation: Operation, work: Work) -> float:
        """Return the number of elements that are cast to FP8 for the matmuls."""
        left, right = matrices_of(operation)
        casts_left = left.dtype not in _FP8
        casts_right = right.dtype not in _FP8 and self._trains
        return sum(
            product.batch * (product.m * casts_left + product.n * casts_right) * product.k
            for product in work.products
        )

    def _stream(self, number: int, work: Work, width: int) -> None:
        for product in work.products:
            left, right = (width * product.elements(side) for side in ("left", "right"))
            result = 2 * product.elements("result")
            self._products.append((number, product.m, product.n, left, right, result))

    def _type(self, operation: Operation, work: Work) -> str:
        """Return the dtype in which the matrix engines multiply, which biases do not affect."""
        if work.kind is Kind.ATTENTION:
            left, right, _ = factors_of(operation)
        else:
            left, right = matrices_of(operation)
        grouped = name_of(operation.operator) == "_grouped_mm"
        if self._fp8 and work.kind is Kind.MATRIX and (len(right.shape) == 2 or grouped):
            return "fp8"
        dtypes = {left.dtype, right.dtype}
        if dtypes.intersection(_FP8):
            return "fp8" if self._card.has_fp8 else "bf16"
        return "fp32" if torch.float32 in dtypes else "bf16"


def array_seconds(product: Product, card: Generation, dtype: str) -> float:
    """Return the time in seconds that a matmul takes at the arrays' peak rate, ignoring memory.

    The best array shape is used. An array computes the tiles of the result one after the other, and
    adds one product per cycle to each element of a tile.
    """
    area = product.k * min(
        _tiles(product, card, rows, columns) * rows * columns for rows, columns in card.array_shapes
    )
    return 2 * area * card.matrix_engines / card.matrix_flops[dtype]


def _tiles(product: Product, card: Generation, rows: int, columns: int) -> int:
    """Return the number of tiles that each engine computes; 0 if the product is empty."""
    if not product.flops:
        return 0
    tiles = product.batch * ceil(product.m / rows) * ceil(product.n / columns)
    return ceil(tiles / card.matrix_engines)
