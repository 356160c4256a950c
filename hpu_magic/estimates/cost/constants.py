"""Fitted constants of the cost model, which no data sheet specifies.

`tools/estimates.py fit` fits them to the published measurements of all generations and model
families at once. The page docs/estimates.md lists the residual of each measurement.
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
    "fusion": "fraction of the data exchanged by a graph's vector operations that stays on the die",
    "node_seconds": "time to start a kernel in a graph, in seconds; not counted for matmuls whose "
    "weights are prefetched",
    "launch_seconds": "time to launch an operator in eager mode, in seconds",
    "link_latency": "time to start a reduce-scatter or an all-gather, in seconds",
    "exchange": "time that exchanging gradients and weights adds to a step, as a multiple of the "
    "time of the collectives alone: below 1 if DDP overlaps it with the backward pass, above 1 if "
    "ZeRO fills buckets, waits for them and reduces whole gradients",
}


@dataclass(frozen=True)
class Constants:
    """Constants of the cost model, in addition to the peaks of the hardware; see `MEANINGS`."""

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
    matrix_efficiency={"gaudi": 0.695, "gaudi2": 0.931, "gaudi3": 0.9},
    memory_efficiency={"gaudi": 0.652, "gaudi2": 0.924, "gaudi3": 0.898},
    vector_efficiency=0.351,
    block=419.0,
    fusion=0.559,
    node_seconds=9.09e-06,
    launch_seconds=2.39e-05,
    link_latency=3.66e-05,
    exchange={"ddp": 0.797, "zero": 5.0},
)


# The error factor for each kind of work. A band of this factor around the estimate contains 90 % of
# the measurements of held-out model families; docs/estimates.md lists the errors. The factor for
# unmeasured work is an assumption.
BANDS = {
    "training": 1.3,
    "passes": 1.3,
    "batches": 1.3,
    "single sequences": 1.25,
    "unmeasured": 2.5,
}
