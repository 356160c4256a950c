"""Which operations are divided among the cards of a tensor-parallel group, told by what they read.

No names of modules are looked at. A product of whole activations with a weight makes a divided
result (the weight by columns), one of divided activations parts of a sum (the weight by rows),
which an all-reduce adds before anything but a sum reads them. What works element by element on
divided tensors is divided as well, attention by its heads, and a weight's gradient as the weight.
The same rules hold backward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hpu_magic.estimates.cost.work import Kind, Product, Work, name_of
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing.program import Operand, Operation, Phase, Program, Role

# Parts of a weight narrower than this are not worth the messages; such weights stay whole.
_NARROWEST = 32
_SOFTMAX = {"_softmax", "_safe_softmax"}


@dataclass(frozen=True, slots=True)
class Share:
    """What of an operation one card does."""

    work: Work
    divided: int = 1
    """Among how many cards its bytes and vector work are divided."""
    reduced: float = 0.0
    """Bytes of the all-reduce before it."""
    makes_parts: bool = False
    """Whether each card has a part of what it writes."""


class Sharding:
    """Follows a program in its order, and says of each operation what one card does of it."""

    def __init__(self, program: Program, cards: int) -> None:
        self._cards = cards
        self._program = program
        self._weights = {
            number for number, one in enumerate(program.storages) if one.role is Role.WEIGHTS
        }
        self._divided: set[int] = set()
        self._partial: dict[int, int] = {}  # storages that hold parts of sums, and their bytes
        self._widths: set[int] = set()  # of weights' products: columns, or rows that are summed

    def share(self, operation: Operation, work: Work) -> Share:
        """Return what one card does of an operation; to be asked in the program's order."""
        if self._cards == 1:
            return Share(work)
        reads = [one for one in operation.reads if one.storage not in self._weights]
        if not reads and operation.reads and work.kind is Kind.VECTOR:
            self._weights.update(one.storage for one in operation.writes)
            return Share(_part(work, self._cards), self._cards)
        if operation.phase is Phase.OPTIMIZER:
            return Share(_part(work, self._cards), self._cards)
        if work.kind is Kind.NOTHING:
            return Share(work)
        partial = [one for one in reads if one.storage in self._partial]
        if partial and len(partial) == len(reads) and name_of(operation.operator) == "add":
            self._partial |= {one.storage: one.bytes for one in operation.writes}
            return Share(work)
        reduced = sum(self._partial.pop(one, 0) for one in {one.storage for one in partial})
        return replace(self._of_whole_sums(operation, work, reads), reduced=float(reduced))

    def refuse_whole_layers(self) -> None:
        """Raise an error if no layer could be divided evenly; to be asked behind the program.

        Raises
        ------
        EstimateError
            There are layers, and none of their sizes is a multiple of the cards.
        """
        if self._cards > 1 and self._widths and all(one % self._cards for one in self._widths):
            widest = max(self._widths)
            raise EstimateError(
                f"tp={self._cards} divides no layer of the model, the widest of which has {widest} "
                f"outputs: give a tp that divides {widest}."
            )

    def _of_whole_sums(self, operation: Operation, work: Work, reads: list[Operand]) -> Share:
        divided = any(one.storage in self._divided for one in reads)
        if work.kind is Kind.MATRIX and len(reads) < len(operation.reads):
            return self._product_with_weight(operation, work, divided)
        if work.kind is Kind.ATTENTION:
            refuse_uneven_heads(operation, self._cards)
            divided = divided or self._is_cache(reads)
        elif operation.writes and self._is_cache(reads) and work.kind is Kind.VECTOR:
            divided = True
        elif _is_softmax_of_scores(operation):
            refuse_uneven_heads(operation, self._cards)
        if not divided:
            return Share(work)
        self._divided.update(one.storage for one in operation.writes)
        return Share(_part(work, self._cards), self._cards, makes_parts=True)

    def _is_cache(self, reads: list[Operand]) -> bool:
        """Whether an operation reads keys or values of earlier tokens, which are kept by heads."""
        storages = self._program.storages
        return any(
            len(one.shape) == 4 and storages[one.storage].role is Role.CACHE for one in reads
        )

    def _product_with_weight(self, operation: Operation, work: Work, divided: bool) -> Share:
        product = work.products[0]
        if operation.phase is Phase.FORWARD:
            self._widths.add(product.k if divided else product.n)
        if min(product.n, product.k) < _NARROWEST * self._cards and not divided:
            return Share(work)
        if not divided:
            self._divided.update(one.storage for one in operation.writes)
            return Share(_part(work, self._cards, by="n"), self._cards, makes_parts=True)
        self._partial |= {one.storage: one.bytes for one in operation.writes}
        return Share(_part(work, self._cards, by="k"), self._cards)


def _is_softmax_of_scores(operation: Operation) -> bool:
    """Tell whether it is attention's, written out: batch x heads x queries x keys, over keys."""
    if name_of(operation.operator) not in _SOFTMAX:
        return False
    return len(operation.reads[0].shape) == 4 and operation.arguments[1] in (-1, 3)


def refuse_uneven_heads(operation: Operation, cards: int) -> None:
    """Raise an error if a card would get a part of an attention head.

    Raises
    ------
    EstimateError
        The heads cannot be divided among the cards.
    """
    queries = max((one.shape for one in operation.reads[:4] if len(one.shape) == 4), default=None)
    if queries is not None and queries[1] % cards:
        raise EstimateError(
            f"{queries[1]} attention heads cannot be divided among tp={cards} cards: give a tp "
            f"that divides {queries[1]}."
        )


def _part(work: Work, cards: int, by: str = "") -> Work:
    if work.kind is Kind.NOTHING:
        return work
    return replace(
        work,
        products=tuple(_divide(one, cards, by) for one in work.products),
        instructions=work.instructions / cards,
        between=work.between / cards,
    )


def _divide(product: Product, cards: int, by: str) -> Product:
    if not by:  # heads, else the longest side of the output
        by = "batch" if product.batch >= cards else "m" if product.m >= product.n else "n"
    return replace(product, **{by: max(-(-getattr(product, by) // cards), 1)})
