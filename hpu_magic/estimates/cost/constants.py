"""Fitted constants of the cost model, which no data sheet specifies.

`tools/estimates.py fit` fits the constants to the published measurements of all generations and
model families at once. The page docs/estimates.md lists the residual of each measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Constants without a unit in their description are dimensionless.
MEANINGS = {
    "matrix_efficiency": "fraction of the matrix engines' peak rate that full arrays achieve",
    "memory_efficiency": "fraction of the memory bandwidth that streaming accesses achieve",
    "vector_efficiency": "fraction of the vector processors' instruction rate that kernels achieve",
    "block": "edge length of an output block in elements; a matmul reads its operands once per "
    "block",
    "fusion": "fraction of the data passed between a graph's vector operations that does not "
    "leave the die",
    "node_seconds": "time to start a kernel in a graph, in seconds; not counted for matmuls whose "
    "weights are prefetched",
    "launch_seconds": "time to launch an operator in eager mode, in seconds",
    "link_latency": "time to start a reduce-scatter or an all-gather, in seconds",
    "exchange": "time that exchanging gradients and weights adds to a step, as a multiple of the "
    "time of the collectives alone: below 1 if DDP overlaps it with the backward pass, above 1 if "
    "ZeRO fills buckets and waits for them, reduces whole gradients, or waits for gathered weights",
}


@dataclass(frozen=True)
class Constants:
    """Constants that the cost model uses in addition to the hardware's peaks; see `MEANINGS`."""

    matrix_efficiency: Mapping[str, float]
    memory_efficiency: Mapping[str, float]
    vector_efficiency: float
    block: float
    fusion: float
    node_seconds: float
    launch_seconds: float
    link_latency: float
    exchange: Mapping[str, float]


FITTED = Constants(
    matrix_efficiency={"gaudi": 0.722, "gaudi2": 0.934, "gaudi3": 0.9},
    memory_efficiency={"gaudi": 0.671, "gaudi2": 0.906, "gaudi3": 0.868},
    vector_efficiency=0.305,
    block=374.0,
    fusion=0.68,
    node_seconds=6.65e-06,
    launch_seconds=1.66e-05,
    link_latency=2.04e-05,
    exchange={"ddp": 0.705, "zero": 2.32, "zero3": 3.11},
)


# The error factor for each kind of work. A band of this factor around the estimate contains at
# least 80 % of the measurements of held-out model families; docs/estimates.md lists
# these errors. The factors for single passes and for unmeasured work are assumptions.
BANDS = {
    "training": 1.8,
    "passes": 1.5,
    "batches": 1.3,
    "single sequences": 1.3,
    "unmeasured": 2.5,
}
