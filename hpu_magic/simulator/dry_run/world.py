"""Process groups in a dry run: one rank runs and represents all ranks of the requested world."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from habana_frameworks.torch import _import_hooks
from torch._C._distributed_c10d import FakeProcessGroup


def install() -> None:
    """Replace PyTorch's process groups with groups that need no other process."""
    # A function has the same name as the module `rendezvous`.
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    distributed_c10d: Any = importlib.import_module("torch.distributed.distributed_c10d")
    rendezvous._rendezvous_handlers["env"] = _meet
    distributed_c10d.ProcessGroupGloo = _Gloo
    group: Any = FakeProcessGroup
    group._set_sequence_number_for_group = lambda self: None
    _import_hooks.when_imported("torch.distributed.pipelining.schedules", _check_stages)


def _check_stages() -> None:
    """Make schedules with one stage per rank refuse more stages than ranks, which would hang."""
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


def _meet(url: str, **_: Any) -> Iterator[tuple[Any, int, int]]:
    """Yield a store, the rank and the number of ranks, as for ``env://``."""
    yield dist.HashStore(), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    raise RuntimeError("Process groups cannot be rebuilt in a dry run.")
