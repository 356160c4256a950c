"""One process group: its members find each other, connect, and hand the rest to the engine."""

from __future__ import annotations

import os
from typing import Any

from habana_frameworks.torch.distributed.hccl._announcements import shared
from habana_frameworks.torch.distributed.hccl._members import Member, this_process
from habana_frameworks.torch.distributed.hccl._reasons import Reasons, users_line

import torch.distributed as dist
from hpu_magic.simulator import cards, engine

_INTERFACE = "HCCL_SOCKET_IFNAME"


def create(options: Any) -> Any:
    """Return the backend of a new process group, once all its ranks have come.

    Parameters
    ----------
    options : torch._C._distributed_c10d._DistributedBackendOptions
        As PyTorch gives them to a backend.
    """
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    ranks = list(options.global_ranks_in_group) or list(range(size))
    cards.be_rank(ranks[rank])
    members = _meet(options.store, rank, ranks)
    gloo = dist.ProcessGroupGloo._Options()
    gloo._devices = [_network(members)]
    gloo._timeout = timeout
    gloo._threads = 2
    reasons = Reasons(options.group_id, options.store, rank, members)
    native = engine.load()
    room = native.bytes_for_announcements(size)
    with shared(options.store, rank, members, room) as announcements:
        transport = dist.ProcessGroupGloo(options.store, rank, size, gloo)
        return native.make_hccl(
            transport, rank, size, timeout, reasons.explain, users_line, announcements
        )


def _meet(store: Any, rank: int, ranks: list[int]) -> list[Member]:
    """Tell the others who this process is, and wait until they have told it."""
    store.set(f"member/{rank}", this_process(ranks[rank]).to_json())
    return [Member.from_json(store.get(f"member/{other}")) for other in range(len(ranks))]


def _network(members: list[Member]) -> Any:
    """Return what to connect over; processes of one machine need not leave it."""
    if interface := os.environ.get(_INTERFACE):
        return dist.ProcessGroupGloo.create_device(interface=interface)
    if len({member.host for member in members}) == 1:
        return dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")
    return dist.ProcessGroupGloo.create_default_device()
