"""Time of matrix products on the arrays of the matrix engines."""

from __future__ import annotations

from math import ceil, sqrt

from hpu_magic.estimate.cost.constants import Constants
from hpu_magic.estimate.cost.hardware import Generation
from hpu_magic.estimate.cost.work import Product


def seconds(product: Product, generation: Generation, constants: Constants, dtype: str) -> float:
    """Return how long the matrix engines take, were memory no limit.

    Parameters
    ----------
    dtype : str
        ``"bf16"``, ``"fp8"`` or ``"fp32"``.
    """
    rate = generation.matrix_flops[dtype] * constants.matrix_efficiency
    return product.flops / (rate * filled(product, generation))


def filled(product: Product, generation: Generation) -> float:
    """Return the share of all arrays that a product's output fills, in the best of their shapes."""
    best = 0.0
    for rows, columns in generation.array_shapes:
        tiles = product.batch * ceil(product.m / rows) * ceil(product.n / columns)
        rounds = ceil(tiles / generation.matrix_engines)
        room = rounds * generation.matrix_engines * rows * columns
        best = max(best, product.batch * product.m * product.n / room)
    return best


def streamed(product: Product, generation: Generation, constants: Constants, width: int) -> float:
    """Return the bytes that memory gives and takes for a product.

    Operands are read once for each block of the output that is made at a time; blocks are as large
    as the arrays of all engines together, times what the memory on the die lets them be reused.
    """
    rows, columns = generation.array
    side = constants.reuse * sqrt(rows * columns * generation.matrix_engines)
    left = product.m * product.k * max(product.n / side, 1.0)
    right = product.k * product.n * max(product.m / side, 1.0)
    return product.batch * ((left + right) * width + 2.0 * product.m * product.n)
