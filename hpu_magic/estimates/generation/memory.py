"""Memory of one card while text is generated, and what makes it up."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hpu_magic.estimates.cost.graph_memory import KEPT_BY_GRAPHS
from hpu_magic.estimates.cost.work import Kind, name_of, work_of
from hpu_magic.estimates.generation.passes import Pass
from hpu_magic.estimates.generation.settings import Settings
from hpu_magic.estimates.memory import peak
from hpu_magic.estimates.shared_memory import sizes_on_one_card
from hpu_magic.estimates.tracing.program import Program, Role


@dataclass(frozen=True)
class Memory:
    """Bytes of one card at the moment of most."""

    weights: int
    """With buffers."""
    cache: int
    """Keys and values of all tokens."""
    activations: int
    """What the pass that needs most has between its operations, with its inputs."""
    logits: int
    graphs: int
    """What captured graphs keep between their replays."""

    @property
    def total(self) -> int:
        """Their sum."""
        return self.weights + self.cache + self.activations + self.logits + self.graphs

    def parts(self) -> dict[str, int]:
        """Return the bytes by what they hold."""
        return {
            "weights": self.weights,
            "KV cache": self.cache,
            "activations": self.activations,
            "logits": self.logits,
            "graphs": self.graphs,
        }


def memory_of(prompt: Pass, last: Pass, settings: Settings) -> Memory:
    """Return what one card needs, for passes over the prompt and over the last token.

    A cache that lies there from the first on has its full length in both passes.
    """
    static = settings.cache == "static"
    kept = _on_one_card(last, settings)
    cache = sum(kept[index] for index in last.after)
    most: Memory | None = None
    graphs = _kept_by_graphs(prompt, last, settings)
    for one in (prompt, last):
        sizes = _on_one_card(one, settings)
        if static:
            for index in one.before | one.after:
                sizes[index] = 0
        by_role = peak(one.program, recorded=settings.mode != "eager", sizes=sizes).by_role
        found = Memory(
            weights=by_role.get(Role.WEIGHTS, 0) + by_role.get(Role.BUFFERS, 0),
            cache=cache if static else by_role.get(Role.CACHE, 0),
            activations=by_role.get(Role.TEMPORARY, 0) + by_role.get(Role.INPUTS, 0),
            logits=by_role.get(Role.LOGITS, 0),
            graphs=graphs,
        )
        if most is None or found.total > most.total:
            most = found
    assert most is not None
    return most


def _on_one_card(one: Pass, settings: Settings) -> list[int]:
    """Return the bytes of each storage on one card, in the types that are asked for."""
    layout = settings.layout
    sizes = sizes_on_one_card(one.program, layout)
    if settings.precision == "fp8":
        for index in _weights_of_products(one.program):
            sizes[index] //= settings.dtype.itemsize
    heads = one.heads()
    for index in one.before | one.after:
        whole = one.program.storages[index].bytes
        count = heads.get(index, 1)
        # More cards than heads of keys each keep a whole one.
        sizes[index] = ceil(whole / min(layout.tensor, count) / layout.pipeline)
    return sizes


def _weights_of_products(program: Program) -> set[int]:
    return {
        operand.storage
        for operation in program.operations
        if work_of(operation).kind is Kind.MATRIX
        for operand in operation.reads
        if (len(operand.shape) == 2 or name_of(operation.operator) == "_grouped_mm")
        and program.storages[operand.storage].role is Role.WEIGHTS
    }


def _kept_by_graphs(prompt: Pass, last: Pass, settings: Settings) -> int:
    if settings.mode != "graphs":
        return 0
    captured = (prompt, last) if settings.capture_prompt else (last,)
    return round(sum(_made(one, settings) for one in captured) * KEPT_BY_GRAPHS)


def _made(one: Pass, settings: Settings) -> int:
    """Return the bytes that the operations of a pass make on one card, but for the cache."""
    sizes = _on_one_card(one, settings)
    return sum(
        size
        for index, (size, storage) in enumerate(zip(sizes, one.program.storages, strict=True))
        if storage.born >= 0 and index not in one.before | one.after
    )
