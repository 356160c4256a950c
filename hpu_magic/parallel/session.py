"""The one set of workers that a notebook has."""

from __future__ import annotations

import atexit
from collections.abc import Sequence

from hpu_magic.errors import RefusedError
from hpu_magic.parallel import worker
from hpu_magic.parallel.output import named
from hpu_magic.parallel.workers import Workers

_workers: Workers | None = None


def workers() -> Workers | None:
    """Return the notebook's workers, None where there are none."""
    return _workers


def start(count: int | None, profile: str | None = None) -> Workers:
    """Start workers.

    Raises
    ------
    RefusedError
        There are some already, they cannot be started, or this process is one itself.
    """
    global _workers
    if (rank := worker.rank()) is not None:
        raise RefusedError(
            f"This is rank {rank} of a notebook's workers, which start none of their own: "
            "run this in the notebook."
        )
    if _workers is not None:
        raise RefusedError(
            f"There are {len(_workers)} workers already: %hpu_workers stop ends them, and their "
            "variables are lost."
        )
    _workers = Workers(count, profile)
    return _workers


def stop(*, at_exit: bool = False) -> int:
    """End the workers and return how many there were."""
    global _workers
    if _workers is None:
        return 0
    ended, _workers = _workers, None
    ended.stop(at_exit=at_exit)
    return len(ended)


# Also those on other machines, which no guard ends.
atexit.register(stop, at_exit=True)


def restart() -> Workers:
    """End the workers and start as many anew.

    Raises
    ------
    RefusedError
        There are none, or they cannot be started.
    """
    if _workers is None:
        raise RefusedError("There are no workers to restart: %hpu_workers start -n N starts some.")
    count, profile = len(_workers), _workers.profile
    stop()
    return start(count, profile)


def ready(count: int | None, ranks: Sequence[int] | None) -> tuple[Workers, list[int]]:
    """Return workers that can run a cell, and the ranks that shall; start them if there are none.

    Parameters
    ----------
    count
        How many there shall be; None takes those that are there, or all free cards.
    ranks
        Those that run the cell; None means all.

    Raises
    ------
    RefusedError
        There is another number of workers, a rank is not there, has ended, or is still busy.
    """
    there = _workers
    if there is not None and count not in (None, len(there)):
        raise RefusedError(
            f"There are {len(there)} workers, not {count}: leave -n out, or end them with "
            "%hpu_workers stop first (their variables are lost)."
        )
    if there is None:
        if ranks and count is not None:
            _require(ranks, count)
        there = start(count)
    chosen = list(range(len(there))) if ranks is None else sorted(set(ranks))
    _require(chosen, len(there))
    if lost := sorted(there.look()):
        have = "has" if len(lost) == 1 else "have"
        who = named(lost)
        raise RefusedError(
            f"{who.capitalize()} {have} ended, and the group is incomplete: %hpu_workers "
            "restart starts all ranks anew (their variables are lost)."
        )
    if busy := there.busy():
        raise RefusedError(
            f"The cell before still runs on {named(busy)}: wait for it, or %hpu_workers restart."
        )
    return there, chosen


def _require(ranks: Sequence[int], count: int) -> None:
    if wrong := [rank for rank in ranks if not 0 <= rank < count]:
        raise RefusedError(f"There is no rank {wrong[0]}: ranks are 0 to {count - 1}.")
