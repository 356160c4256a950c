"""Create a process group: the ranks exchange their identities and connect to each other."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from habana_frameworks.torch.distributed.hccl._meeting import Meeting
from habana_frameworks.torch.distributed.hccl._members import Member
from habana_frameworks.torch.distributed.hccl._reasons import Reasons, users_line

import torch.distributed as dist
from hpu_magic.simulator import cards, engine
from hpu_magic.simulator.cards import place
from hpu_magic.simulator.dry_run import start as dry_run
from hpu_magic.simulator.dry_run import world

_INTERFACE = "HCCL_SOCKET_IFNAME"
_ANNOUNCEMENTS = "announcements"


def create(options: Any) -> Any:
    """Wait for all ranks of a new process group, and return the group's backend.

    `options` are PyTorch's backend options.
    """
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    ranks = options.global_ranks_in_group
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if dry_run.is_on():
        return engine.load().make_hccl(
            world.lone_group(rank, size),
            rank,
            size,
            stride,
            timeout,
            _unexplained,
            _unexplained,
            -1,
        )
    meeting = Meeting(options.group_id, options.store, rank, size, ranks)
    cards.be_rank(meeting.rank)
    members = meeting.members()
    gloo = dist.ProcessGroupGloo._Options()
    gloo._devices = [_network(members)]
    gloo._timeout = timeout
    gloo._threads = 2
    reasons = Reasons(options.group_id, options.store, rank, members)
    native = engine.load()
    file_size = native.bytes_for_announcements(size)
    with _shared_file(meeting, options.store, rank, members, file_size) as announcements:
        transport = dist.ProcessGroupGloo(options.store, rank, size, gloo)
        return native.make_hccl(
            transport, rank, size, stride, timeout, reasons.explain, users_line, announcements
        )


def _unexplained(*_: Any) -> str:
    return ""  # collectives of a dry run do not wait for other ranks


def _network(members: list[Member]) -> Any:
    """Return the network device to use, which is loopback if all ranks are on the same machine."""
    if interface := os.environ.get(_INTERFACE):
        return dist.ProcessGroupGloo.create_device(interface=interface)
    if len({member.host for member in members}) == 1:
        return dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")
    return dist.ProcessGroupGloo.create_default_device()


@contextlib.contextmanager
def _shared_file(
    meeting: Meeting, store: Any, rank: int, members: list[Member], size: int
) -> Iterator[int]:
    """Yield the descriptor of the file in which ranks announce calls, or -1 if not available.

    The ranks must connect inside the ``with`` block. Once all ranks are connected, they have opened
    the file, so it can be unlinked. Ranks on different machines cannot share memory.
    """
    if len({member.host for member in members}) > 1:
        yield -1
        return
    path = ""
    if rank == 0:
        with contextlib.suppress(OSError):
            path = _create_file(size)
        store.set(_ANNOUNCEMENTS, path)
    else:
        path = meeting.value(_ANNOUNCEMENTS, members[0].rank).decode()
    file = -1
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield file
    finally:
        if file >= 0:
            os.close(file)
        if rank == 0 and path:
            os.unlink(path)


def _create_file(size: int) -> str:
    file, path = tempfile.mkstemp(prefix="announcements-", dir=place.directory())
    try:
        os.truncate(file, size)
    finally:
        os.close(file)
    return path
