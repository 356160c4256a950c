"""Calculate the work of attention: its matmuls, and the operations on its scores."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from hpu_magic.estimates.cost.products import Product, name_of
from hpu_magic.estimates.tracing.program import Operand, Operation

# Instructions per score.
_FORWARD, _MASK, _BACKWARD, _RECOMPUTED = 14.0, 1.0, 5.0, 10.0
# How often the scores are read or written if attention runs as several operations.
_PASSES, _PASSES_BACKWARD, _PASSES_OF_MASK = 4, 7, 2
SKIPPED = 0.25
"""Fraction of the scores above a causal mask's diagonal that the vendor's kernel does not compute.

This is an assumption, because the vendor does not publish the fraction. With a fraction of 0, most
estimates for pre-training Llama 2 are slower than the measurements; with 1, those for the smallest
model are almost 50 % too fast.
"""


@dataclass(frozen=True, slots=True)
class Attention:
    """The work of an attention operator."""

    products: tuple[Product, ...]
    instructions: float
    """Number of vector instructions, each of which processes one bf16 element."""
    between: float
    """Size in bytes of the scores, counted once for each read and write."""


def is_attention(name: str) -> bool:
    """Return whether an operator computes attention."""
    return "scaled_dot_product" in name or _is_fused(name)


def _is_fused(name: str) -> bool:
    return "sdpa" in name


def factors_of(operation: Operation) -> tuple[Operand, Operand, Operand]:
    """Return the query, key and value of an attention operator."""
    # The first argument of backward operators is a gradient, and the first argument of some of the
    # vendor's forward operators is a seed.
    first = int(_is_backward(operation) or len(operation.reads[0].shape) < 3)
    query, key, value = operation.reads[first : first + 3]
    return query, key, value


def _is_backward(operation: Operation) -> bool:
    name = name_of(operation.operator)
    return "backward" in name or "bwd" in name


def attention(operation: Operation, *, fused: bool = False) -> Attention:
    """Return the work of attention: its matmuls, and the softmax of its scores.

    PyTorch's attention runs as several operations, because the card has no single kernel for it:
    all scores are computed, and a mask is added to them. The vendor's operator keeps the scores on
    the die, and with a causal mask it only computes the scores below the diagonal. If ``fused`` is
    true, the vendor's operator replaces PyTorch's.
    """
    query, key, value = (operand.shape for operand in factors_of(operation))
    name = name_of(operation.operator)
    fused = fused or _is_fused(name)
    batch, rows, columns = prod(query[:-2]), query[-2], key[-2]
    causal = _is_causal(operation)
    share = 1 - SKIPPED * _above_diagonal(rows, columns) if fused and causal else 1.0
    elements = float(batch) * rows * columns * share
    # Query heads that share a KV head form the rows of one matmul, so keys are loaded only once.
    grouped = max(batch // max(prod(key[:-2]), 1), 1)
    batch, rows, columns = batch // grouped, rows * grouped, ceil(columns * share)
    scores = Product(batch, rows, columns, query[-1])
    if not _is_backward(operation):
        weighted = Product(batch, rows, value[-1], columns)
        masked = _has_mask(operation) or (causal and not fused)
        passes = 0 if fused else _PASSES + masked * _PASSES_OF_MASK
        instructions = elements * (_FORWARD + masked * _MASK)
        return Attention((scores, weighted), instructions, 2.0 * passes * elements)
    products = (
        Product(batch, columns, value[-1], rows),  # gradient of the values
        Product(batch, rows, columns, value[-1]),  # gradient of the probabilities
        Product(batch, rows, query[-1], columns),  # gradient of the queries
        Product(batch, columns, query[-1], rows),  # gradient of the keys
    )
    recomputed = "recomp" in name
    instructions = elements * (_BACKWARD + recomputed * _RECOMPUTED)
    passes = 0 if fused else _PASSES_BACKWARD
    return Attention((scores,) * recomputed + products, instructions, 2.0 * passes * elements)


def _above_diagonal(rows: int, columns: int) -> float:
    """Return the fraction of the scores that a causal mask hides; row i uses i + 1 columns."""
    short = min(rows, columns)
    used = short * (short + 1) / 2 + (rows - short) * columns
    return 1 - used / (rows * columns)


def _is_causal(operation: Operation) -> bool:
    return bool(_argument(operation, "is_causal"))


def _has_mask(operation: Operation) -> bool:
    """Return whether a tensor is added to the scores; other operands are scales and lengths."""
    columns = factors_of(operation)[1].shape[-2]
    others = [each.shape for each in operation.reads[3:]]
    return any(len(shape) > 1 and shape[-1] == columns for shape in others)


def _argument(operation: Operation, name: str) -> object:
    """Return the value of an operator's argument that is not a tensor."""
    for position, argument in enumerate(operation.operator._schema.arguments):
        if argument.name == name:
            given = position < len(operation.arguments)
            return operation.arguments[position] if given else argument.default_value
    return None
