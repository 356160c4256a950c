"""Describe the states of ranks in a parallel run, and find the slowest rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpu_magic.runtime.measure.card_time import CardTime

_NOTICEABLE = 1.2


@dataclass(frozen=True)
class RankState:
    """The state of one rank; missing values are None."""

    rank: int  # number of the rank
    host: str  # name of the machine
    pid: int  # process id
    card: int | None = None  # module ID of its card
    in_use: int | None = None
    peak: int | None = None
    limit: int | None = None
    """Device memory in bytes."""
    steps: int = 0  # number of optimizer steps since the cell began
    steps_per_second: float | None = None  # pace since the previous state
    own_seconds: float | None = None
    """Duration of a step in seconds, excluding the backward pass, in which ranks wait for each
    other."""
    card_step: CardTime | None = None
    """Estimated time of a step on a card, if the clock of the simulated card is on."""


def slowest(states: Sequence[RankState]) -> RankState | None:
    """Return the rank that the others wait for, based on step times without the backward pass.

    Returns None if fewer than two ranks have a measured time, or if the longest time exceeds the
    shortest by at most a fifth.
    """
    timed = [(state.own_seconds, state) for state in states if state.own_seconds]
    if len(timed) < 2:
        return None
    longest, state = max(timed, key=lambda pair: pair[0])
    return state if longest > _NOTICEABLE * min(seconds for seconds, _ in timed) else None
