"""Time in which graphs are compiled when their shapes are met first."""

from __future__ import annotations

from hpu_magic.estimates.cost.work import Kind, work_of
from hpu_magic.estimates.tracing.program import Program

SECONDS_AN_OPERATOR = 0.3e-3
"""A server's log on Gaudi2 tells of 72 graphs of a model of eight thousand million parameters that
were compiled in 28 s; a pass of such a model runs 1,300 operators."""

BAND = 1 / 4, 4.0
"""Assumed: one log, of inference alone, with host and release not told."""


def compile_seconds(program: Program, mode: str) -> float:
    """Return the seconds that one graph of a program takes to compile; 0 in eager mode.

    There each operator has a small graph of its own, for which nothing is published.
    """
    if mode == "eager":
        return 0.0
    operators = sum(
        one.times for one in program.operations if work_of(one).kind is not Kind.NOTHING
    )
    return SECONDS_AN_OPERATOR * operators
