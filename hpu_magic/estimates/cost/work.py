"""The work of an operation: matmuls, vector instructions, and memory traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

import torch

from hpu_magic.estimates.tracing.program import Operand, Operation


class Kind(StrEnum):
    """The component of a card that runs an operation."""

    NOTHING = "nothing"
    MATRIX = "matrix"
    ATTENTION = "attention"
    VECTOR = "vector"
    GATHER = "gather"


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` matmuls, each of an m x k matrix and a k x n matrix."""

    batch: int
    m: int
    n: int
    k: int
    unfolded: str = ""
    """Matrix that is an unfolded image with repeated elements: ``"left"``, ``"right"``,
    ``"result"``, or empty if there is none."""
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


@dataclass(frozen=True, slots=True)
class Work:
    """The work required to run an operation once."""

    kind: Kind
    products: tuple[Product, ...] = ()
    instructions: float = 0.0
    """Number of vector instructions, each of which processes one bf16 element."""
    between: float = 0.0
    """Bytes that engines exchange within the operation, such as attention scores."""


# Number of instructions per element. Special functions such as exp use a lookup table and a
# polynomial.
PLAIN, SPECIAL = 1.0, 10.0
_SPECIAL = {
    *("exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "tanh", "sigmoid"),
    *("erf", "erfc", "gelu", "silu", "mish", "softplus", "logit", "rsqrt", "sqrt", "reciprocal"),
    *("div", "pow", "tanh_backward", "sigmoid_backward", "gelu_backward", "silu_backward"),
    *("mish_backward", "softplus_backward", "hardswish", "elu", "selu", "logsumexp", "bernoulli"),
    *("native_dropout", "_fused_dropout", "dropout", "rand", "randn", "uniform", "normal"),
}
_PASSES = {  # instructions per element, including sums, differences and a special function
    "_softmax": 3 + SPECIAL,
    "_log_softmax": 3 + SPECIAL,
    "_safe_softmax": 3 + SPECIAL,
    "_softmax_backward_data": 4.0,
    "_log_softmax_backward_data": 3 + SPECIAL,
    "native_layer_norm": 6.0,
    "native_layer_norm_backward": 12.0,
    "native_group_norm": 6.0,
    "native_group_norm_backward": 12.0,
    "native_batch_norm": 6.0,
    "_native_batch_norm_legit": 6.0,
    "_batch_norm_with_update": 6.0,
    "native_batch_norm_backward": 12.0,
    "batch_norm_backward": 12.0,
    "_fused_rms_norm": 5.0,
    "_fused_rms_norm_backward": 10.0,
    "rms_norm": 5.0,
    "rms_norm_backward": 10.0,
    "topk": 32.0,
    "sort": 64.0,
    "cumsum": 4.0,
}
_NOTHING = {"detach", "lift_fresh", "alias", "empty", "empty_like", "empty_strided", "new_empty"}
_NOTHING |= {"_local_scalar_dense", "_assert_async", "_assert_scalar", "sym_size", "_reshape_alias"}
_GATHER = {"embedding", "index", "index_select", "gather", "take", "embedding_dense_backward"}
_GATHER |= {"index_put", "_unsafe_index", "_unsafe_index_put", "scatter", "scatter_add"}
_GATHER |= {"index_add", "index_copy", "select_scatter", "slice_scatter", "nll_loss_forward"}
_GATHER |= {"_embedding_bag", "_embedding_bag_forward_only", "scatter_reduce", "index_fill"}
# Operators that use only the shapes of all operands, or only the shape of the second operand.
_SHAPES = {"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"}
_SHAPES |= {"new_zeros", "new_ones", "new_full"}
_SHAPE_OF_SECOND = {"nll_loss_backward", "nll_loss2d_backward", "avg_pool2d_backward"}
_SHAPE_OF_SECOND |= {"_adaptive_avg_pool2d_backward", "max_pool2d_with_indices_backward"}
# Operators that overwrite their operand in place without reading it.
_OVERWRITES = {"copy", "fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential"}


def name_of(operator: torch._ops.OpOverload) -> str:
    """Return an operator's name without its overload and its in-place underscore."""
    name: str = operator._schema.name.rpartition("::")[2]
    return name if name.startswith("__") else name.rstrip("_")


def work_of(operation: Operation) -> Work:
    """Return the work required to run an operation once."""
    name = name_of(operation.operator)
    if operation.is_view or name in _NOTHING:
        return Work(Kind.NOTHING)
    if (products := _PRODUCTS.get(name)) is not None:
        return Work(Kind.MATRIX, products(operation))
    if "scaled_dot_product" in name or "sdpa" in name:
        return _attention(name, operation)
    if name in _GATHER:
        moved = max((operand.elements for operand in operation.writes), default=0)
        return Work(Kind.GATHER, instructions=PLAIN * moved)
    return Work(Kind.VECTOR, instructions=_instructions(name, operation))


def touched(operation: Operation, kind: Kind) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """Return the operands that an operation reads and writes, except those used only for shapes.

    Only the selected or updated rows of an embedding table or indexed tensor are counted.
    """
    reads, writes = operation.reads, operation.writes
    name, in_place = name_of(operation.operator), operation.operator._schema.is_mutable
    if name == "_grouped_mm" and len(reads[1].shape) == 3:
        used = _grouped(operation)[0].batch / reads[1].shape[0]
        return (reads[0], replace(reads[1], bytes=round(reads[1].bytes * used))), writes
    if name in _SHAPES:
        return (), writes
    if name in _SHAPE_OF_SECOND:
        return (*reads[:1], *reads[2:]), writes
    if in_place and name in _OVERWRITES and reads[:1] == writes[:1]:
        return reads[1:], writes
    if kind is not Kind.GATHER or not writes:
        return reads, writes
    if not in_place:
        return _at_most(reads, max(operand.bytes for operand in writes)), writes
    table = {operand.storage for operand in writes}
    others = tuple(operand for operand in reads if operand.storage not in table)
    return others, _at_most(writes, max((operand.bytes for operand in others), default=0))


def _at_most(operands: tuple[Operand, ...], size: int) -> tuple[Operand, ...]:
    return tuple(replace(operand, bytes=min(operand.bytes, size)) for operand in operands)


def _instructions(name: str, operation: Operation) -> float:
    if "foreach" in name or "optimizer" in name or name.startswith("_fused_adam"):
        # Multi-tensor optimizers such as Adam compute two moments, a square root and a division per
        # weight.
        return sum(map(_wide, operation.writes)) * (PLAIN + 0.5 * SPECIAL)
    elements = max(map(_wide, (*operation.reads, *operation.writes)), default=0.0)
    plain = name.removesuffix("_backward") if name not in _SPECIAL else name
    each = _PASSES.get(name) or (SPECIAL if plain in _SPECIAL else PLAIN)
    if name == "pow" and operation.arguments[1:2] in ((1,), (1.0,), (2,), (2.0,), (3,), (3.0,)):
        each = PLAIN
    if name == "div" and not _wide_second(operation):
        each = PLAIN  # a division by a scalar is computed as a multiplication
    return elements * each


def _wide_second(operation: Operation) -> bool:
    return len(operation.reads) > 1 and operation.reads[1].elements > 1


def _wide(operand: Operand) -> float:
    """Return the number of elements, doubled for 4-byte dtypes as vectors hold half as many."""
    return operand.elements * max(min(operand.dtype.itemsize, 4), 2) / 2


def _shapes(operation: Operation) -> list[tuple[int, ...]]:
    return [operand.shape for operand in operation.reads]


def _mm(operation: Operation) -> tuple[Product, ...]:
    left, right = _shapes(operation)[-2:]
    return (Product(1, left[0], right[1], left[1]),)


def _bmm(operation: Operation) -> tuple[Product, ...]:
    left, right = _shapes(operation)[-2:]
    return (Product(left[0], left[1], right[2], left[2]),)


def _addmm(operation: Operation) -> tuple[Product, ...]:
    _, left, right = _shapes(operation)[:3]
    return (Product(1, left[0], right[1], left[1]),)


def _vector_product(operation: Operation) -> tuple[Product, ...]:
    shapes = _shapes(operation)[-2:]
    rows, inner = (1, shapes[0][0]) if len(shapes[0]) == 1 else (shapes[0][0], shapes[0][1])
    return (Product(1, rows, 1, inner),)


def _linear(operation: Operation) -> tuple[Product, ...]:
    source, weight = _shapes(operation)[:2]
    return (Product(1, prod(source[:-1]), weight[0], weight[-1]),)


def _gemm_fp8(operation: Operation) -> tuple[Product, ...]:
    left, right = _shapes(operation)[:2]
    result = operation.writes[0].shape
    inner = prod(left) // max(prod(result[:-1]), 1)
    batch = prod(result[:-2]) if len(right) > 2 else 1
    return (Product(batch, prod(result[:-1]) // batch, result[-1], inner),)


def _grouped(operation: Operation) -> tuple[Product, ...]:
    """Return a matmul for each group of rows, such as the tokens routed to an expert.

    All groups are assumed to have the same size.

    If there are few rows, some groups are empty, and their matrices are not read.
    """
    left, right = _shapes(operation)[:2]
    if len(left) == len(right) == 2:  # groups along the reduction dimension, as for gradients
        groups, rows, columns = operation.writes[0].shape
        return (Product(groups, rows, columns, -(-left[1] // groups)),)
    groups = left[0] if len(left) == 3 else right[0]
    if len(left) == len(right):
        return (Product(groups, left[1], right[2], left[2]),)
    if len(right) == 3:
        used = _filled(groups, left[0])
        return (Product(used, -(-left[0] // used), right[2], left[1]),)
    used = _filled(groups, right[1])
    return (Product(used, left[1], -(-right[1] // used), left[2]),)


def _filled(groups: int, rows: int) -> int:
    """Return the expected number of non-empty groups if rows are assigned at random."""
    return max(round(groups * (1 - (1 - 1 / groups) ** rows)), 1)


def _convolution(operation: Operation) -> tuple[Product, ...]:
    source, weight = _shapes(operation)[:2]
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
    gradient, source, weight = _shapes(operation)[:3]
    transposed, _, groups, wanted = operation.arguments[-4:]
    forward = _unfolded(source, gradient, weight, (transposed, None, groups))
    times = forward.times
    to_input = Product(forward.batch, forward.m, forward.k, forward.n, "result", times)
    to_weight = Product(forward.batch, forward.n, forward.k, forward.m, "right", times)
    mask = wanted if isinstance(wanted, tuple) else (True, True)
    return (to_input,) * bool(mask[0]) + (to_weight,) * bool(mask[1])


_PRODUCTS: dict[str, Callable[[Operation], tuple[Product, ...]]] = {
    "mm": _mm,
    "bmm": _bmm,
    "addmm": _addmm,
    "baddbmm": _bmm,
    "addbmm": _bmm,
    "mv": _vector_product,
    "dot": _vector_product,
    "addmv": _vector_product,
    "linear": _linear,
    "_scaled_mm": _gemm_fp8,
    "fp8_gemm": _gemm_fp8,
    "fp8_gemm_v2": _gemm_fp8,
    "_grouped_mm": _grouped,
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    "convolution_backward_overrideable": _convolution_backward,
}


def _attention(name: str, operation: Operation) -> Work:
    """Return the work of attention: its matmuls, and the softmax of all scores.

    PyTorch's attention runs as several operations, because the card has no single kernel for it.
    The vendor's fused operator keeps the scores on the die.
    """
    backward = "backward" in name or "bwd" in name
    query, key, value = _shapes(operation)[1:4] if backward else _shapes(operation)[:3]
    batch, rows, columns = prod(query[:-2]), query[-2], key[-2]
    elements = float(batch) * rows * columns
    # Query heads that share a KV head form the rows of one matmul, so keys are loaded only once.
    grouped = max(batch // max(prod(key[:-2]), 1), 1)
    batch, rows = batch // grouped, rows * grouped
    scores = Product(batch, rows, columns, query[-1])
    weighted = Product(batch, rows, value[-1], columns)
    fused = "sdpa" in name
    # Number of times that the scores are read or written.
    passes = 7 if backward else 4
    if not backward:
        return Work(
            Kind.ATTENTION,
            (scores, weighted),
            elements * (4 + SPECIAL),
            0.0 if fused else 2.0 * passes * elements,
        )
    products = (
        Product(batch, columns, value[-1], rows),  # gradient of the values
        Product(batch, rows, columns, value[-1]),  # gradient of the probabilities
        Product(batch, rows, query[-1], columns),  # gradient of the queries
        Product(batch, columns, query[-1], rows),  # gradient of the keys
    )
    recomputed = (scores,) if "recomp" in name else ()
    return Work(
        Kind.ATTENTION,
        recomputed + products,
        elements * (5 + SPECIAL * len(recomputed)),
        0.0 if fused else 2.0 * passes * elements,
    )
