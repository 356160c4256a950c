"""The work of an operation: matmuls, vector instructions, and memory traffic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hpu_magic.estimates.cost.attention import attention, is_attention
from hpu_magic.estimates.cost.products import PRODUCTS, Product, grouped_products, name_of
from hpu_magic.estimates.tracing.program import Operand, Operation


class Kind(StrEnum):
    """The component of a card that runs an operation."""

    NOTHING = "nothing"
    MATRIX = "matrix"
    ATTENTION = "attention"
    VECTOR = "vector"
    GATHER = "gather"
    REARRANGING = "rearranging"  # moves elements without calculating


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
_LANES = 128
"""Number of bf16 elements in a vector."""
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
    "_native_batch_norm_legit_functional": 6.0,
    "_native_batch_norm_legit_no_training": 6.0,
    "_batch_norm_with_update": 6.0,
    "native_batch_norm_backward": 12.0,
    "batch_norm_backward": 12.0,
    "batch_norm_stats": 3.0,
    "batch_norm_elemt": 3.0,
    "batch_norm_backward_reduce": 5.0,
    "batch_norm_backward_elemt": 7.0,
    "_fused_rms_norm": 5.0,
    "_fused_rms_norm_backward": 10.0,
    "rms_norm": 5.0,
    "rms_norm_backward": 10.0,
    "topk": 32.0,
    "sort": 64.0,
    "cumsum": 4.0,
}
# Operators that change the order of elements, which the compiler does not fuse with calculations.
# Copies of transposed tensors are fused: the estimates of held-out families are better if they are.
_REARRANGING = {"roll", "flip", "constant_pad_nd"}
_NOTHING = {"detach", "lift_fresh", "alias", "empty", "empty_like", "empty_strided", "new_empty"}
_NOTHING |= {"resize", "set"}  # of storages, as in FSDP
_NOTHING |= {"_local_scalar_dense", "_assert_async", "_assert_scalar", "sym_size", "_reshape_alias"}
_GATHER = {"embedding", "index", "index_select", "gather", "take", "embedding_dense_backward"}
_GATHER |= {"index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put", "scatter"}
_GATHER |= {
    "scatter_add",
    "index_add",
    "index_copy",
    "select_scatter",
    "slice_scatter",
    "nll_loss_forward",
}
_GATHER |= {"_embedding_bag", "_embedding_bag_forward_only", "scatter_reduce", "index_fill"}
# Operators that use only the shapes of all operands, or only the shape of the second operand.
_SHAPES = {"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"}
_SHAPES |= {"new_zeros", "new_ones", "new_full"}
_SHAPE_OF_SECOND = {"nll_loss_backward", "nll_loss2d_backward", "avg_pool2d_backward"}
_SHAPE_OF_SECOND |= {"_adaptive_avg_pool2d_backward", "max_pool2d_with_indices_backward"}
# Operators that overwrite their operand in place without reading it.
_OVERWRITES = {"copy", "fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential"}


def work_of(operation: Operation, *, fused_attention: bool = False) -> Work:
    """Return the work required to run an operation once.

    If ``fused_attention`` is true, the vendor's operator replaces PyTorch's attention.
    """
    name = name_of(operation.operator)
    if operation.is_view or name in _NOTHING or _has_no_elements(operation):
        return Work(Kind.NOTHING)
    if (products := PRODUCTS.get(name)) is not None:
        return Work(Kind.MATRIX, products(operation))
    if is_attention(name):
        found = attention(operation, fused=fused_attention)
        return Work(Kind.ATTENTION, found.products, found.instructions, found.between)
    if name in _GATHER:
        moved = max((operand.elements for operand in operation.writes), default=0)
        return Work(Kind.GATHER, instructions=PLAIN * moved)
    kind = Kind.REARRANGING if name in _REARRANGING and _has_order(operation) else Kind.VECTOR
    return Work(kind, instructions=_instructions(name, operation))


def _has_no_elements(operation: Operation) -> bool:
    """Return whether all results are empty; PyTorch sometimes copies empty tensors."""
    return bool(operation.writes) and all(0 in operand.shape for operand in operation.writes)


def _has_order(operation: Operation) -> bool:
    """Return whether an operand has several rows of several vectors, so that order matters."""
    return sum(size > 1 for operand in operation.writes[:1] for size in operand.shape) > 2


def touched(operation: Operation, kind: Kind) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """Return the operands that an operation reads and writes, except those used only for shapes.

    Only the selected or updated rows of an embedding table or indexed tensor are counted.
    """
    reads, writes = operation.reads, operation.writes
    name, in_place = name_of(operation.operator), operation.operator._schema.is_mutable
    if name == "_grouped_mm" and len(reads[1].shape) == 3:
        used = grouped_products(operation)[0].batch / reads[1].shape[0]
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
    if "softmax" in name or "layer_norm" in name or "rms_norm" in name:
        elements *= _padded(operation)
    return elements * each


def _padded(operation: Operation) -> float:
    """Return by how much the last dimension grows if it is padded to complete vectors."""
    last = max((operand.shape for operand in operation.reads), key=len, default=(1,))[-1:]
    return -(-last[0] // _LANES) * _LANES / last[0] if last and last[0] else 1.0


def _wide_second(operation: Operation) -> bool:
    return len(operation.reads) > 1 and operation.reads[1].elements > 1


def _wide(operand: Operand) -> float:
    """Return the number of elements, doubled for 4-byte dtypes as vectors hold half as many."""
    return operand.elements * max(min(operand.dtype.itemsize, 4), 2) / 2
