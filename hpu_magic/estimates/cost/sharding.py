"""Determine how operations are distributed across the cards of a tensor-parallel group.

The distribution depends on the operands, not on module names. A matmul of replicated activations
and a weight has a sharded output, because the weight is sharded by columns. A matmul of sharded
activations and a weight produces partial sums, because the weight is sharded by rows. An all-reduce
adds the partial sums before they are read by any operation other than an addition, and adds the
partial sums that are results of a forward pass. Elementwise operations on sharded tensors are
sharded as well, attention is sharded by heads, and the gradient of a weight is sharded like the
weight. The same rules apply to the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hpu_magic.estimates.cost.products import Product, name_of
from hpu_magic.estimates.cost.work import Kind, Work
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing.program import Operand, Operation, Phase, Program, Role

# Weights are not sharded if the shards would be narrower than this, because the communication would
# cost more than sharding saves.
_NARROWEST = 32
_BY_ELEMENT = (Kind.VECTOR, Kind.REARRANGING)
_SOFTMAX = {"_softmax", "_safe_softmax"}


@dataclass(frozen=True, slots=True)
class Share:
    """One card's share of an operation."""

    work: Work
    divided: int = 1
    """Number of cards among which the operation's memory traffic and vector work are divided."""
    reduced: float = 0.0
    """Size in bytes of the operation's all-reduces, most of which precede it."""
    makes_parts: bool = False
    """Whether each card holds a shard of the outputs."""


class Sharding:
    """Determines one card's share of each operation, in program order."""

    def __init__(self, program: Program, cards: int) -> None:
        self._cards = cards
        self._program = program
        self._weights = {
            number for number, each in enumerate(program.storages) if each.role is Role.WEIGHTS
        }
        self._divided: set[int] = set()
        self._partial: dict[int, int] = {}  # size in bytes of each storage with partial sums
        self._results = {
            number for number, each in enumerate(program.storages) if each.freed is None
        }
        self._widths: set[int] = set()  # sharded sizes of matmuls with weights
        self.reduced = set[str]()
        """Paths of the modules whose products of the forward pass are partial sums."""

    def share(self, operation: Operation, work: Work) -> Share:
        """Return one card's share of an operation; must be called in program order."""
        if self._cards == 1:
            return Share(work)
        reads = [operand for operand in operation.reads if operand.storage not in self._weights]
        if not reads and operation.reads and work.kind in _BY_ELEMENT:
            self._weights.update(operand.storage for operand in operation.writes)
            return Share(_part(work, self._cards), self._cards)
        if operation.phase is Phase.OPTIMIZER:
            return Share(_part(work, self._cards), self._cards)
        if work.kind is Kind.NOTHING:
            # The compiler omits copies of results to existing tensors, which are kept.
            if name_of(operation.operator) == "copy":
                self._results.update(operand.storage for operand in operation.reads)
            return Share(work)
        partial = [operand for operand in reads if operand.storage in self._partial]
        if partial and len(partial) == len(reads) and name_of(operation.operator) == "add":
            self._partial |= {operand.storage: operand.bytes for operand in operation.writes}
            return Share(work)
        storages = {operand.storage for operand in partial}
        reduced = sum(self._partial.pop(storage, 0) for storage in storages)
        return replace(self._of_complete_sums(operation, work, reads), reduced=float(reduced))

    def complete_results(self, shares: list[Share]) -> list[Share]:
        """Return the shares with the all-reduces of partial sums that are results.

        In a forward pass, these are the partial sums that outlive the program and that no
        operation has read, other than an addition. Call this method after `share` has been called
        for all operations.
        """
        complete = list(shares)
        for number in reversed(range(len(shares))):
            share = shares[number]
            if share.work.kind is Kind.NOTHING:
                continue
            storages = {operand.storage for operand in self._program.operations[number].writes}
            if rest := sum(self._partial.pop(each, 0) for each in storages & self._results):
                complete[number] = replace(share, reduced=share.reduced + rest)
        return complete

    def check_layers(self) -> None:
        """Raise `EstimateError` if no layer's size is divisible by the number of cards.

        Call this method after `share` has been called for all operations.
        """
        if self._cards > 1 and self._widths and all(size % self._cards for size in self._widths):
            widest = max(self._widths)
            raise EstimateError(
                f"No layer of the model is divisible by tp={self._cards}; the widest layer has "
                f"{widest} outputs: use a divisor of {widest}."
            )

    def _of_complete_sums(self, operation: Operation, work: Work, reads: list[Operand]) -> Share:
        divided = any(operand.storage in self._divided for operand in reads)
        if work.kind is Kind.MATRIX and len(reads) < len(operation.reads):
            return self._product_with_weight(operation, work, divided)
        if work.kind is Kind.ATTENTION:
            check_heads(operation, self._cards)
            divided = divided or self._is_cache(reads)
        elif operation.writes and self._is_cache(reads) and work.kind in _BY_ELEMENT:
            divided = True
        elif _is_softmax_of_scores(operation):
            check_heads(operation, self._cards)
        if not divided:
            return Share(work)
        self._divided.update(operand.storage for operand in operation.writes)
        return Share(_part(work, self._cards), self._cards, makes_parts=True)

    def _is_cache(self, reads: list[Operand]) -> bool:
        """Return whether an operation reads the KV cache, which is sharded across heads."""
        storages = self._program.storages
        return any(
            len(each.shape) == 4 and storages[each.storage].role is Role.CACHE for each in reads
        )

    def _product_with_weight(self, operation: Operation, work: Work, divided: bool) -> Share:
        product = work.products[0]
        if operation.phase is Phase.FORWARD:
            self._widths.add(int(product.k if divided else product.n))
        if min(product.n, product.k) < _NARROWEST * self._cards and not divided:
            return Share(work)
        if not divided:
            self._divided.update(operand.storage for operand in operation.writes)
            return Share(_part(work, self._cards, by="n"), self._cards, makes_parts=True)
        self._partial |= {operand.storage: operand.bytes for operand in operation.writes}
        if operation.phase is Phase.FORWARD:
            self.reduced.add(operation.module)
        return Share(_part(work, self._cards, by="k"), self._cards)


def _is_softmax_of_scores(operation: Operation) -> bool:
    """Return whether an operation is a softmax of attention scores, which have four dimensions."""
    if name_of(operation.operator) not in _SOFTMAX:
        return False
    return len(operation.reads[0].shape) == 4 and operation.arguments[1] in (-1, 3)


def check_heads(operation: Operation, cards: int) -> None:
    """Raise `EstimateError` if the number of attention heads is not a multiple of ``cards``."""
    shapes = [operand.shape for operand in operation.reads[:4] if len(operand.shape) == 4]
    queries = max(shapes, default=None)
    if queries is not None and queries[1] % cards:
        raise EstimateError(
            f"{queries[1]} attention heads are not divisible by tp={cards}: use a divisor of "
            f"{queries[1]}."
        )


def _part(work: Work, cards: int, by: str = "") -> Work:
    if work.kind is Kind.NOTHING:
        return work
    return replace(
        work,
        products=tuple(_divide(product, cards, by) for product in work.products),
        instructions=work.instructions / cards,
        between=work.between / cards,
    )


def _divide(product: Product, cards: int, by: str) -> Product:
    if not by:  # divide the heads or, if there are too few, the longer side of the output
        by = "batch" if product.batch >= cards else "m" if product.m >= product.n else "n"
    return replace(product, **{by: max(-(-getattr(product, by) // cards), 1)})
