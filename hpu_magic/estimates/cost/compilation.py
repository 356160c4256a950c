"""Compilation time of graphs."""

from __future__ import annotations

from hpu_magic.estimates.cost.work import Kind, work_of
from hpu_magic.estimates.tracing.program import Program

SECONDS_PER_OPERATOR = 0.3e-3
"""From the log of a server on Gaudi2, which compiled 72 graphs of a model with 8 billion parameters
in 28 s. A pass of such a model runs 1,300 operators."""

BAND = 1 / 4, 4.0
"""Assumed, because there is only one log, of inference, which names neither host nor release."""


def compile_seconds(program: Program, mode: str) -> float:
    """Return the compilation time of a program's graph in seconds; 0 in eager mode.

    In eager mode, each operator has its own small graph, whose compilation time is not published.
    """
    if mode == "eager":
        return 0.0
    operators = sum(
        each.times for each in program.operations if work_of(each).kind is not Kind.NOTHING
    )
    return SECONDS_PER_OPERATOR * operators
