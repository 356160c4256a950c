"""The constants of the cost model that no data sheet has: what they are, and what was fitted.

`tools/estimates.py fit` fits them to the published measurements, all generations and families at
once; docs/estimates.md has the residuals of each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Each is a pure number unless a unit stands here.
MEANINGS = {
    "matrix_efficiency": "share of the matrix engines' peak that full arrays reach",
    "memory_efficiency": "share of the memory's bandwidth that streams reach",
    "vector_efficiency": "share of the vector processors' instruction rate that kernels reach",
    "reuse": "edge of the blocks of an output for which a product's operands are read once, in "
    "edges of the arrays of all engines together",
    "fusion": "share of what vector operations of a graph hand on that stays on the die",
    "handed": "share of what one kernel of a graph hands to the next that passes through memory",
    "overlap": "where a graph lies between one engine after the other (0) and all side by side (1)",
    "node_seconds": "begin of a kernel of a graph, not of products whose weights come ahead, in "
    "seconds",
    "launch_seconds": "launch of an operator in eager mode, in seconds",
    "link_efficiency": "share of the links' bandwidth that collectives reach",
    "link_latency": "begin of a reduce-scatter or an all-gather, in seconds",
    "exchange": "what the exchange of gradients adds to a step, in times of bare collectives: "
    "less where it is hidden, more where buckets are filled and waited for",
}


@dataclass(frozen=True)
class Constants:
    """What prices of operations are made with, besides the hardware's peaks; see `MEANINGS`."""

    matrix_efficiency: Mapping[str, float]
    memory_efficiency: Mapping[str, float]
    vector_efficiency: float
    reuse: Mapping[str, float]
    fusion: float
    handed: float
    overlap: float
    node_seconds: float
    launch_seconds: float
    link_efficiency: float
    link_latency: float
    exchange: float


FITTED = Constants(
    matrix_efficiency={"gaudi": 0.828, "gaudi2": 0.963, "gaudi3": 0.9},
    memory_efficiency={"gaudi": 0.729, "gaudi2": 1.0, "gaudi3": 0.895},
    vector_efficiency=0.356,
    reuse={"gaudi": 3.94, "gaudi2": 0.923, "gaudi3": 0.553},
    fusion=0.718,
    handed=0.989,
    overlap=1.0,
    node_seconds=8.87e-06,
    launch_seconds=8.67e-06,
    link_efficiency=1.0,
    link_latency=2.66e-05,
    exchange=2.59,
)


# Nine of ten measurements of families that the fit had not seen lie within this factor of their
# estimate, by kind of work; docs/estimates.md has the errors. Where nothing was measured: assumed.
BANDS = {"training": 1.55, "batches": 2.1, "single sequences": 1.3, "unmeasured": 2.5}
