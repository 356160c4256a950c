"""Process groups in a dry run: a rank represents the other ranks of its groups in collectives."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlparse

import torch
import torch.distributed as dist
from habana_frameworks.torch import _import_hooks
from torch._C._distributed_c10d import FakeProcessGroup

_ranks = 1


def install(rank: int) -> None:
    """Replace PyTorch's process groups with groups that do not need other processes.

    `rank` is the rank of this process if the script starts its ranks.
    """
    # A function has the same name as the module `rendezvous`.
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    distributed_c10d: Any = importlib.import_module("torch.distributed.distributed_c10d")
    for scheme in ("env", "tcp", "file"):
        rendezvous._rendezvous_handlers[scheme] = _meet
    spawning = importlib.import_module("torch.multiprocessing.spawn")
    modules: list[Any] = [spawning, torch.multiprocessing]
    for module in modules:
        module.spawn = functools.partial(_spawn, int(os.environ.get("LOCAL_RANK") or rank))
        module.start_processes = module.spawn
    distributed_c10d.ProcessGroupGloo = _Gloo
    group: Any = FakeProcessGroup
    group._set_sequence_number_for_group = lambda self: None
    _import_hooks.when_imported("torch.distributed.pipelining.schedules", _check_stages)
    _import_hooks.when_imported("torch.distributed.checkpoint.default_planner", _accept_plans)


def _accept_plans() -> None:
    """Allow saving sharded checkpoints, although only the shards of rank 0 exist."""
    planner: Any = importlib.import_module("torch.distributed.checkpoint.default_planner")
    result = planner._validate_global_plan.__annotations__.get("return")
    valid: Any = True if result in (bool, "bool") else []  # newer releases return a list of errors
    planner._validate_global_plan = lambda *_: valid


def _check_stages() -> None:
    """Make pipeline schedules for one stage per rank reject more stages, which would hang."""
    schedules: Any = importlib.import_module("torch.distributed.pipelining.schedules")
    create = schedules.PipelineScheduleSingle.__init__

    @functools.wraps(create)
    def checked(self: Any, stage: Any, *arguments: Any, **options: Any) -> None:
        if stage.num_stages > stage.group_size:
            raise ValueError(
                f"The pipeline has {stage.num_stages} stages, but only {stage.group_size} ranks: "
                f"pass --cards {stage.num_stages}, or use a schedule with several stages per rank."
            )
        create(self, stage, *arguments, **options)

    schedules.PipelineScheduleSingle.__init__ = checked


def lone_group(rank: int, size: int) -> Any:
    """Return a group whose collectives copy this rank's values instead of communicating."""
    create = getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)
    return create(rank, size)


class _IsLoneGroup(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, FakeProcessGroup)


class _Gloo(metaclass=_IsLoneGroup):
    """Replaces PyTorch's group for CPU tensors, whose constructor connects all ranks."""

    def __new__(cls, store: Any, rank: int, size: int, *_: Any, **__: Any) -> Any:
        return lone_group(rank, size)


def ranks() -> int:
    """Return the largest number of processes that the script has started, or 1."""
    return _ranks


class _Joined:
    """A process context whose processes have all ended."""

    processes: tuple[Any, ...] = ()

    def join(self, *_: Any, **__: Any) -> bool:
        """Return whether all processes have ended."""
        return True

    def pids(self) -> list[int]:
        """Return the processes' PIDs."""
        return []


def _spawn(
    rank: int,
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    *_: Any,
    **__: Any,
) -> _Joined | None:
    """Run, in this process, one of the processes that the script starts."""
    global _ranks
    _ranks = max(_ranks, nprocs)
    fn(rank, *args)
    return None if join else _Joined()


def _meet(url: str, **_: Any) -> Iterator[tuple[Any, int, int]]:
    """Yield a store, and the rank and the number of ranks from the URL or the environment."""
    query = dict(parse_qsl(urlparse(url).query))
    try:
        rank = int(query.get("rank") or os.environ["RANK"])
        size = int(query.get("world_size") or os.environ["WORLD_SIZE"])
    except KeyError as missing:
        raise ValueError(
            f"The process group needs a rank and a number of ranks, but {missing.args[0]} is not "
            "set: pass --cards N to the dry run."
        ) from None
    yield dist.HashStore(), rank, size
    raise RuntimeError("Process groups cannot be rebuilt in a dry run.")
