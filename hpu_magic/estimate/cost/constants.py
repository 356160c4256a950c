"""The constants of the cost model that no data sheet has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Constants:
    """What the prices of operations are made with, besides the hardware's peaks."""

    matrix_efficiency: float = 0.98
    """Share of the matrix peak that the best products reach; none."""
    vector_efficiency: float = 0.5
    """Share of the vector processors' instruction rate that kernels reach; none."""
    memory_efficiency: Mapping[str, float] = field(
        default_factory=lambda: {"gaudi": 0.69, "gaudi2": 0.93, "gaudi3": 0.82}
    )
    """Share of the memory's bandwidth that streams reach, by generation; none."""
    reuse: float = 1.5
    """Edge of the blocks for which operands are streamed anew, in edges of the array; none."""
    scores_to_memory: float = 0.5
    """Share of attention's scores that leave the die between its kernels; none."""
    overlap: float = 0.5
    """Share of the shorter of matrix and vector work that runs beside the other in graphs; none."""
    node_seconds: float = 5e-6
    """From one kernel of a graph to the next; seconds."""
    launch_seconds: float = 12e-6
    """Launch of one operator in eager mode; seconds."""
    link_efficiency: float = 0.98
    """Share of the links' bandwidth that collectives reach; none."""
    link_latency: float = 20e-6
    """Begin of one collective; seconds."""
    exposed: float = 0.8
    """Share of the gradients' exchange that does not run beside the backward pass; none."""


FITTED = Constants()
