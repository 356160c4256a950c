"""Describe operators as matmuls, and find the matrices that they multiply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch

from hpu_magic.estimates.tracing.program import Operand, Operation, card_bytes

# Operators that do not multiply their first tensor, which is a summand or the gradient of the
# result.
_AFTER_FIRST = {"addmm", "baddbmm", "addbmm", "addmv", "convolution_backward"}
_AFTER_FIRST |= {"convolution_backward_overrideable"}


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` matmuls, each of an m x k matrix and a k x n matrix."""

    batch: float
    """Number of matmuls; an expected number if empty groups are skipped."""
    m: float
    n: float
    k: float
    unfolded: str = ""
    """Which matrix is an unfolded image: ``"left"``, ``"right"``, ``"result"`` or ``""``."""
    times: float = 1.0
    """Average number of copies of each image element in the unfolded matrix."""

    def elements(self, operand: str) -> float:
        """Return the number of elements of an operand or the result, not counting repeated ones."""
        rows, columns = {
            "left": (self.m, self.k),
            "right": (self.k, self.n),
            "result": (self.m, self.n),
        }[operand]
        count = float(self.batch) * rows * columns
        return count / self.times if operand == self.unfolded else count

    @property
    def flops(self) -> float:
        """Total number of multiplications and additions."""
        return 2.0 * self.batch * self.m * self.n * self.k


def name_of(operator: torch._ops.OpOverload) -> str:
    """Return an operator's name without its overload and its in-place underscore."""
    name: str = operator._schema.name.rpartition("::")[2]
    return name if name.startswith("__") else name.rstrip("_")


def matrices_of(operation: Operation) -> tuple[Operand, Operand]:
    """Return the two operands that an operator in `PRODUCTS` multiplies.

    Other operands, such as biases and scales, may have other dtypes.
    """
    first = int(name_of(operation.operator) in _AFTER_FIRST)
    left, right = operation.reads[first : first + 2]
    return left, right


def _matrices(operation: Operation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    left, right = matrices_of(operation)
    return left.shape, right.shape


def _mm(operation: Operation) -> tuple[Product, ...]:
    left, right = _matrices(operation)
    return (Product(1, left[0], right[1], left[1]),)


def _bmm(operation: Operation) -> tuple[Product, ...]:
    """Return one larger matmul if all matmuls have an operand in common.

    PyTorch multiplies a batch by an expanded weight, for example if the weight needs no gradient
    and the batch is a slice of another tensor.
    """
    left, right = matrices_of(operation)
    batch, m, k = left.shape
    n = right.shape[2]
    if _is_repeated(right):
        return (Product(1, batch * m, n, k),)
    if _is_repeated(left):
        return (Product(1, m, batch * n, k),)
    return (Product(batch, m, n, k),)


def _is_repeated(matrices: Operand) -> bool:
    """Return whether all matrices are views of a single matrix, which was expanded."""
    batch = matrices.shape[0]
    return batch * matrices.bytes <= card_bytes(matrices.dtype, matrices.elements)


def _vector_product(operation: Operation) -> tuple[Product, ...]:
    left, _ = _matrices(operation)
    rows, inner = (1, left[0]) if len(left) == 1 else left
    return (Product(1, rows, 1, inner),)


def _linear(operation: Operation) -> tuple[Product, ...]:
    source, weight = _matrices(operation)
    return (Product(1, prod(source[:-1]), weight[0], weight[-1]),)


def _gemm_fp8(operation: Operation) -> tuple[Product, ...]:
    left, right = _matrices(operation)
    result = operation.writes[0].shape
    inner = prod(left) // max(prod(result[:-1]), 1)
    batch = prod(result[:-2]) if len(right) > 2 else 1
    return (Product(batch, prod(result[:-1]) // batch, result[-1], inner),)


def grouped_products(operation: Operation) -> tuple[Product, ...]:
    """Return a matmul for each group of rows, such as the tokens routed to an expert.

    All groups are assumed to have the same size.

    If there are few rows, some groups are empty, and their matrices are not read.
    """
    left, right = _matrices(operation)
    if len(left) == len(right) == 2:  # the rows to sum over are grouped, as for gradients
        groups, rows, columns = operation.writes[0].shape
        return (Product(groups, rows, columns, left[1] / groups),)
    groups = left[0] if len(left) == 3 else right[0]
    if len(left) == len(right):
        return (Product(groups, left[1], right[2], left[2]),)
    if len(right) == 3:
        used = _filled(groups, left[0], operation.choices)
        return (Product(used, left[0] / used, right[2], left[1]),)
    used = _filled(groups, right[1], operation.choices)
    return (Product(used, left[1], right[1] / used, left[2]),)


def _filled(groups: int, rows: int, choices: float) -> float:
    """Return the expected number of non-empty groups if tokens are assigned at random.

    Each token has rows in `choices` different groups.
    """
    empty = max(1 - choices / groups, 0.0) ** (rows / choices)
    return max(groups * (1 - empty), 1.0)


def _convolution(operation: Operation) -> tuple[Product, ...]:
    source, weight = _matrices(operation)
    return (_unfolded(source, operation.writes[0].shape, weight, operation.arguments[6:9]),)


def _unfolded(
    source: tuple[int, ...],
    result: tuple[int, ...],
    weight: tuple[int, ...],
    options: Sequence[object],
) -> Product:
    """Return a convolution as a matmul of its unfolded input and its weights."""
    transposed, groups = bool(options[0]), int(options[2])  # type: ignore[call-overload]
    places, image = (source, result) if transposed else (result, source)
    within = prod(weight[2:]) * weight[1]
    outputs = weight[0] // groups
    rows = places[0] * prod(places[2:])
    times = max(groups * rows * within / prod(image), 1.0)
    return Product(groups, rows, outputs, within, "left", times)


def _convolution_backward(operation: Operation) -> tuple[Product, ...]:
    gradient = operation.reads[0].shape
    source, weight = _matrices(operation)
    transposed, _, groups, wanted = operation.arguments[-4:]
    forward = _unfolded(source, gradient, weight, (transposed, None, groups))
    times = forward.times
    to_input = Product(forward.batch, forward.m, forward.k, forward.n, "result", times)
    to_weight = Product(forward.batch, forward.n, forward.k, forward.m, "right", times)
    mask = wanted if isinstance(wanted, tuple) else (True, True)
    return (to_input,) * bool(mask[0]) + (to_weight,) * bool(mask[1])


PRODUCTS: dict[str, Callable[[Operation], tuple[Product, ...]]] = {
    "mm": _mm,
    "bmm": _bmm,
    "addmm": _mm,
    "baddbmm": _bmm,
    "addbmm": _bmm,
    "mv": _vector_product,
    "dot": _vector_product,
    "addmv": _vector_product,
    "linear": _linear,
    "_scaled_mm": _gemm_fp8,
    "fp8_gemm": _gemm_fp8,
    "fp8_gemm_v2": _gemm_fp8,
    "_grouped_mm": grouped_products,
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    "convolution_backward_overrideable": _convolution_backward,
}
