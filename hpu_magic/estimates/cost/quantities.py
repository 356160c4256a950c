"""What each operation of a step asks of one card, as columns of numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil

import numpy as np
import numpy.typing as npt
import torch

from hpu_magic.estimates.cost.fusion import traffic
from hpu_magic.estimates.cost.hardware import Generation
from hpu_magic.estimates.cost.sharding import Sharding, Share
from hpu_magic.estimates.cost.work import Kind, Product, Work, name_of, work_of
from hpu_magic.estimates.layout import Layout
from hpu_magic.estimates.tracing.program import Operand, Operation, Phase, Program, Role

Column = npt.NDArray[np.float64]
_WIDTHS = {"fp8": 1, "bf16": 2, "fp32": 4}
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@dataclass(frozen=True)
class Operations:
    """One row an operation; all of it for the times that it runs in one run of the program."""

    arrays: Column
    """Seconds of the matrix engines at their peak, with arrays as full as the shapes fill them."""
    instructions: Column
    """Of the vector processors, for an element of bf16 each."""
    thin_arrays: Column
    """As `arrays`, of products too thin to fill them: the vector processors may do these."""
    thin_instructions: Column
    """As `instructions`, of the same products."""
    moved: Column
    """Bytes of its operands that pass through memory."""
    spared: Column
    """Bytes of its operands that do not, where the compiler fuses all that it may."""
    scores: Column
    """Bytes of attention's scores, counted for each time that they are written or read."""
    reduced: Column
    """Bytes of its all-reduce in a tensor-parallel group."""
    operators: Column
    """How often it runs; 0 for views."""
    kernels: Column
    """How many kernels of a graph begin with it that nothing is fetched for ahead of time."""
    optimizer: Column
    """1 for the optimizer's, which run once for several runs of the rest."""


@dataclass(frozen=True)
class Products:
    """One row for each matrix product of linear layers and convolutions."""

    owner: npt.NDArray[np.int64]
    """Index of its operation."""
    rows: Column
    columns: Column
    left: Column
    """Bytes of the operand that has the rows."""
    right: Column
    """Bytes of the operand that has the columns."""
    result: Column
    """Bytes of the result."""


def quantities(
    program: Program, card: Generation, *, fused: bool, fp8: bool, layout: Layout
) -> tuple[Operations, Products]:
    """Return what a program asks of one card.

    Parameters
    ----------
    program : Program
        What one card would run, were there no others.
    card : Generation
        The card.
    fused : bool
        Whether it runs as graphs.
    fp8 : bool
        Whether linear layers multiply 8-bit numbers.
    layout : Layout
        What the card has of it.

    Raises
    ------
    EstimateError
        The model cannot be divided so.
    """
    return _Reader(program, card, fp8, layout).read(fused)


class _Reader:
    def __init__(self, program: Program, card: Generation, fp8: bool, layout: Layout) -> None:
        self._program, self._card = program, card
        self._fp8, self._layout = fp8, layout
        self._trains = any(one.phase is Phase.BACKWARD for one in program.operations)
        self._weights = {
            number for number, one in enumerate(program.storages) if one.role is Role.WEIGHTS
        }
        self._products: list[tuple[float, ...]] = []

    def read(self, fused: bool) -> tuple[Operations, Products]:
        program = self._program
        works = [work_of(one) for one in program.operations]
        sharding = Sharding(program, self._layout.tensor)
        moved = traffic(program, [one.kind for one in works], fused=fused)
        rows = []
        for number, (operation, work) in enumerate(zip(program.operations, works, strict=True)):
            found = next(moved)
            share = sharding.share(operation, work)
            sizes = [self._size(each, share) for each in (found.moved, found.spared)]
            rows.append(self._row(number, operation, share, sizes, found.begins))
        sharding.refuse_whole_layers()
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(fields(Operations))).T
        each = np.array(self._products, dtype=np.float64).reshape(len(self._products), 6).T
        return Operations(*table), Products(each[0].astype(np.int64), *each[1:])

    def _size(self, operands: tuple[Operand, ...], share: Share) -> float:
        return (
            sum(
                one.bytes / (one.dtype.itemsize if self._in_8_bits(one.storage) else 1)
                for one in operands
            )
            / share.divided
        )

    def _in_8_bits(self, storage: int) -> bool:
        """Whether a model that only runs keeps this so; one that trains casts its weights anew."""
        return self._fp8 and not self._trains and storage in self._weights

    def _row(
        self,
        number: int,
        operation: Operation,
        share: Share,
        sizes: list[float],
        begins: bool,
    ) -> tuple[float, ...]:
        work, times = share.work, operation.times
        if work.kind is Kind.NOTHING:
            return (0.0,) * len(fields(Operations))
        instructions, arrays = work.instructions, 0.0
        thin_instructions, thin_arrays = 0.0, 0.0
        if work.products:
            dtype = self._type(operation, work)
            for one in work.products:
                by_arrays = array_seconds(one, self._card, dtype)
                if by_arrays > one.flops / self._card.vector_flops:
                    thin_arrays += by_arrays
                    thin_instructions += one.flops / 2
                else:
                    arrays += by_arrays
            if work.kind is Kind.MATRIX:
                cast = self._cast(work) if dtype == "fp8" and self._fp8 else 0.0
                sizes[0] += 3 * cast  # two bytes read, one written
                instructions += cast
                self._stream(number, work, _WIDTHS[dtype])
        optimizer = operation.phase is Phase.OPTIMIZER
        if optimizer and self._layout.zero:
            sizes = [each / self._layout.data for each in sizes]
            instructions /= self._layout.data
        return (
            arrays * times,
            instructions * times,
            thin_arrays * times,
            thin_instructions * times,
            *(each * times for each in sizes),
            work.between * times,
            share.reduced * times,
            times,
            times * (begins and not self._prefetched(operation, work)),
            optimizer,
        )

    def _prefetched(self, operation: Operation, work: Work) -> bool:
        """Whether its weights are fetched beside the kernel before, which hides its begin."""
        return work.kind is Kind.MATRIX and any(
            one.storage in self._weights for one in operation.reads
        )

    def _cast(self, work: Work) -> float:
        """Return the elements that are made 8-bit numbers for a product."""
        return sum(
            one.batch * (one.m * one.k + one.k * one.n * self._trains) for one in work.products
        )

    def _stream(self, number: int, work: Work, width: int) -> None:
        for one in work.products:
            left, right = (width * one.elements(each) for each in ("left", "right"))
            self._products.append((number, one.m, one.n, left, right, 2 * one.elements("result")))

    def _type(self, operation: Operation, work: Work) -> str:
        reads = operation.reads
        grouped = name_of(operation.operator) == "_grouped_mm"
        if work.kind is Kind.ATTENTION or len(reads[0].shape) > 3 or grouped:
            telling = reads[1 % len(reads)]
        else:
            telling = reads[-1]
        if self._fp8 and (len(telling.shape) == 2 or grouped):
            return "fp8"
        if telling.dtype in _FP8:
            return "fp8" if self._card.has_fp8 else "bf16"
        return "fp32" if telling.dtype is torch.float32 else "bf16"


def array_seconds(product: Product, card: Generation, dtype: str) -> float:
    """Return how long a product takes on the arrays at their peak, were memory no limit."""
    return product.flops / (card.matrix_flops[dtype] * filled(product, card))


def filled(product: Product, card: Generation) -> float:
    """Return the share of all arrays that a product's output fills, in the best of their shapes."""
    if not product.flops:  # of an empty tensor
        return 1.0
    best = 0.0
    for rows, columns in card.array_shapes:
        tiles = product.batch * ceil(product.m / rows) * ceil(product.n / columns)
        rounds = ceil(tiles / card.matrix_engines)
        room = rounds * card.matrix_engines * rows * columns
        best = max(best, product.batch * product.m * product.n / room)
    return best
