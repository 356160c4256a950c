"""Memory usage of one card during text generation."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hpu_magic.estimates.cost.products import name_of
from hpu_magic.estimates.cost.work import Kind, work_of
from hpu_magic.estimates.generation.passes import Pass
from hpu_magic.estimates.generation.settings import GenerationSettings
from hpu_magic.estimates.generation.slices import sliced
from hpu_magic.estimates.memory import peak
from hpu_magic.estimates.shared_memory import sizes_on_one_card
from hpu_magic.estimates.tracing.program import Program, Role

KEPT_BY_GRAPHS = 0.13
"""Fraction of the bytes created by a captured pass that its graph keeps between replays.

The log of a Gaudi2 server reports 14.03 GiB for prompts with 9,984 tokens captured in 15 shapes,
and 0.158 GiB for single tokens of one to four sequences captured in 48 shapes. For a model with the
same shapes, these sizes correspond to fractions of 0.14 and, assuming an average of 2.3 sequences,
0.13. The log covers only one model; the graphs of other models may keep half or twice as much
memory.
"""


@dataclass(frozen=True)
class GenerationMemory:
    """The components of one card's peak memory usage, in bytes."""

    weights: int
    buffers: int
    cache: int
    """Keys and values of all tokens."""
    temporary: int
    """Temporary tensors of the pass with the higher memory peak."""
    inputs: int
    logits: int
    graphs: int
    """Memory that captured graphs keep between replays."""

    @property
    def total(self) -> int:
        """The sum of all components."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, int]:
        """Map the name of each component that is not empty to its size in bytes."""
        sizes = {
            "weights": self.weights,
            "buffers": self.buffers,
            "KV cache": self.cache,
            "temporary results": self.temporary,
            "inputs": self.inputs,
            "logits": self.logits,
            "graphs": self.graphs,
        }
        return {name: size for name, size in sizes.items() if size}


def memory_of(prompt: Pass, last: Pass, settings: GenerationSettings) -> GenerationMemory:
    """Return the memory usage of one card, given the passes over the prompt and the last token.

    A static cache is allocated at its full length in both passes. In graphs, some intermediate
    results are stored for only one sequence at a time; see `sliced`.
    """
    static = settings.cache == "static"
    kept = _on_one_card(last, settings)
    cache = sum(kept[index] for index in last.after)
    most: GenerationMemory | None = None
    graphs = _kept_by_graphs(prompt, last, settings)
    for traced in (prompt, last):
        sizes = _on_one_card(traced, settings)
        if static:
            for index in traced.before | traced.after:
                sizes[index] = 0
        if settings.mode != "eager":
            for index in sliced(traced.program):
                sizes[index] = ceil(sizes[index] / traced.program.samples)
        by_role = peak(traced.program, recorded=settings.mode != "eager", sizes=sizes).by_role
        found = GenerationMemory(
            weights=by_role.get(Role.WEIGHTS, 0),
            buffers=by_role.get(Role.BUFFERS, 0),
            cache=cache if static else by_role.get(Role.CACHE, 0),
            temporary=by_role.get(Role.TEMPORARY, 0),
            inputs=by_role.get(Role.INPUTS, 0),
            logits=by_role.get(Role.LOGITS, 0),
            graphs=graphs,
        )
        if most is None or found.total > most.total:
            most = found
    assert most is not None
    return most


def _on_one_card(traced: Pass, settings: GenerationSettings) -> list[int]:
    """Return the size in bytes of each storage on one card, with the dtypes in the settings."""
    layout = settings.layout
    sizes = sizes_on_one_card(traced.program, layout)
    if settings.dtype == "fp8":
        for index in _weights_of_products(traced.program):
            sizes[index] //= settings.torch_dtype.itemsize
    heads = traced.heads()
    for index in traced.before | traced.after:
        total = traced.program.storages[index].bytes
        count = heads.get(index, 1)
        # If there are more cards than KV heads, each card stores one head.
        sizes[index] = ceil(total / min(layout.tensor, count) / layout.pipeline)
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


def _kept_by_graphs(prompt: Pass, last: Pass, settings: GenerationSettings) -> int:
    if settings.mode != "graphs":
        return 0
    captured = (prompt, last) if settings.capture_prompt else (last,)
    return round(sum(_created(traced, settings) for traced in captured) * KEPT_BY_GRAPHS)


def _created(traced: Pass, settings: GenerationSettings) -> int:
    """Return the size in bytes of a pass's new storages on one card, excluding the cache."""
    sizes = _on_one_card(traced, settings)
    return sum(
        size
        for index, (size, storage) in enumerate(zip(sizes, traced.program.storages, strict=True))
        if storage.born >= 0 and index not in traced.before | traced.after
    )
