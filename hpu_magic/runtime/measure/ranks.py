"""What the processes of a parallel run tell of themselves, and which of them is slowest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_NOTICEABLE = 1.2


@dataclass(frozen=True)
class RankState:
    """One rank at one moment; None stands for what is not there yet.

    Attributes
    ----------
    rank : int
        Among all ranks.
    host : str
        The machine's name.
    pid : int
        The process.
    card : int or None
        Module id of its card.
    in_use, peak, limit : int or None
        Bytes on the card.
    steps : int
        Steps of optimizers since the cell began.
    steps_per_second : float or None
        Since the last time it told.
    own_seconds : float or None
        Seconds of a step outside of its backward pass, which is where ranks wait for each other.
    """

    rank: int
    host: str
    pid: int
    card: int | None = None
    in_use: int | None = None
    peak: int | None = None
    limit: int | None = None
    steps: int = 0
    steps_per_second: float | None = None
    own_seconds: float | None = None


def slowest(states: Sequence[RankState]) -> RankState | None:
    """Return the rank whose own part of a step takes longest, for which the others wait.

    None where fewer than two ranks tell how long they take, or where the longest is within
    a fifth of the shortest.
    """
    timed = [(state.own_seconds, state) for state in states if state.own_seconds]
    if len(timed) < 2:
        return None
    longest, state = max(timed, key=lambda one: one[0])
    return state if longest > _NOTICEABLE * min(timed, key=lambda one: one[0])[0] else None
