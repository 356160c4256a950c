"""Starts and stops the notebook's workers; a notebook has at most one set of workers."""

from __future__ import annotations

import atexit
from collections.abc import Sequence

from hpu_magic.errors import HPUError
from hpu_magic.parallel import worker
from hpu_magic.parallel.output import named
from hpu_magic.parallel.workers import RESTART, Workers

_workers: Workers | None = None


def workers() -> Workers | None:
    """Return the notebook's workers, or None if there are none."""
    return _workers


def start(count: int | None, profile: str | None = None) -> Workers:
    """Start workers.

    Raises
    ------
    HPUError
        Workers are already running, they cannot be started, or this process is itself a worker.
    """
    global _workers
    if (rank := worker.rank()) is not None:
        raise HPUError(
            f"This process is rank {rank} of a notebook's workers and cannot start workers itself: "
            "run this in the notebook."
        )
    if _workers is not None:
        raise HPUError(
            f"{len(_workers)} workers are already running: end them with %hpu_workers off (their "
            "variables are lost)."
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


# Workers on other machines have no guard, so they are ended at exit.
atexit.register(stop, at_exit=True)


def restart() -> Workers:
    """End the workers and start the same number of new ones.

    Raises
    ------
    HPUError
        There are no workers, or they cannot be started.
    """
    if _workers is None:
        raise HPUError("No workers are running: start some with %hpu_workers on --cards N.")
    count, profile = len(_workers), _workers.profile
    stop()
    return start(count, profile)


def ready(count: int | None, ranks: Sequence[int] | None) -> tuple[Workers, list[int]]:
    """Return the workers and the ranks that will run a cell; start workers if there are none.

    If `count` is None, use the existing workers or start one on each free card. If `ranks` is None,
    use all ranks.

    Raises
    ------
    HPUError
        There is a different number of workers, or a rank does not exist, has ended or is busy.
    """
    existing = _workers
    if existing is not None and count not in (None, len(existing)):
        raise HPUError(
            f"{len(existing)} workers are running, not {count}: omit --cards, or end them first "
            "with %hpu_workers off (their variables are lost)."
        )
    if existing is None:
        if ranks and count is not None:
            _require(ranks, count)
        existing = start(count)
    chosen = list(range(len(existing))) if ranks is None else sorted(set(ranks))
    _require(chosen, len(existing))
    if lost := sorted(existing.look()):
        have = "has" if len(lost) == 1 else "have"
        raise HPUError(
            f"{named(lost).capitalize()} {have} ended, and the group is incomplete. {RESTART}"
        )
    if busy := existing.busy():
        raise HPUError(
            f"The previous cell is still running on {named(busy)}: wait for it, or run "
            "%hpu_workers restart."
        )
    return existing, chosen


def _require(ranks: Sequence[int], count: int) -> None:
    if wrong := [rank for rank in ranks if not 0 <= rank < count]:
        raise HPUError(f"Rank {wrong[0]} does not exist: choose ranks from 0 to {count - 1}.")
