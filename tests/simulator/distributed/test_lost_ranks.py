"""Ranks that die or hang: the others end with an error that names them, and cards are free."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from ranks import join
from torch import nn

TIMEOUT = 4


def train(steps):
    torch.manual_seed(0)
    parallel = nn.parallel.DistributedDataParallel(nn.Linear(256, 256).to("hpu"))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for _ in range(steps):
        parallel(torch.ones(64, 256, device="hpu")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def module_and_pid():
    import hpu_magic.simulator.cards as cards

    torch.ones(1, device="hpu")
    return cards.acquire().module_id, os.getpid()


def last_line(error):
    return error.strip().splitlines()[-1]


def test_killed_rank_is_reported_by_the_others(launch, monkeypatch):
    from hpu_magic.simulator import cards

    ranks = launch(4)
    ranks(join)
    modules = ranks(module_and_pid)
    assert sorted(module for module, _ in modules) == [0, 1, 2, 3]
    ranks.ask(train, 1_000_000)
    time.sleep(1.0)
    os.kill(ranks.pids[1], signal.SIGKILL)
    for rank in (0, 2, 3):
        _, error = ranks.answer(rank, 100)
        sentence = last_line(error)
        assert "torch.distributed.DistBackendError: " in sentence
        assert f"failed on rank {rank} (process {ranks.pids[rank]})" in sentence
        assert f"rank 1 (process {ranks.pids[1]}) ended during the call." in sentence
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", ranks.cards)
    held = {card.module_id: card.holder.pid for card in cards.snapshot() if card.holder}
    assert held == {module: pid for module, pid in modules if pid != ranks.pids[1]}
    ranks.ask(reduce_once, of=(0, 2, 3))
    for rank in (0, 2, 3):
        _, error = ranks.answer(rank, 100)
        assert "This process group has failed and can no longer run collectives" in error


def reduce_once():
    dist.all_reduce(torch.ones(1, device="hpu"))


def reduce_with_a_late_rank(late):
    tensor = torch.ones(4, device="hpu")
    dist.all_reduce(tensor)
    if dist.get_rank() == late:
        time.sleep(60)
    dist.all_reduce(tensor)


def test_missing_rank_is_reported_after_the_timeout(launch):
    ranks = launch(3)
    ranks(join, TIMEOUT)
    ranks.ask(reduce_with_a_late_rank, 2)
    sentences = [last_line(ranks.answer(rank, 100)[1]) for rank in (0, 1)]
    code = reduce_with_a_late_rank.__code__
    sleep, last = (f"{code.co_filename}:{code.co_firstlineno + ahead}" for ahead in (4, 5))
    for sentence in sentences:
        assert "all_reduce number 2 in process group" in sentence
        assert f"within {TIMEOUT} s" in sentence or "failed on" in sentence
        late = f"rank 2 (process {ranks.pids[2]})"
        assert sentence.endswith(f": {late} did not join the call and is at {sleep}.")
    assert any(f", which is at {last}: " in sentence for sentence in sentences)


def test_stopped_rank_is_reported_as_stopped(launch):
    ranks = launch(2)
    ranks(join, TIMEOUT)
    os.kill(ranks.pids[0], signal.SIGSTOP)
    ranks.ask(reduce_once)
    sentence = last_line(ranks.answer(1, 100)[1])
    assert f"rank 0 (process {ranks.pids[0]}) did not join the call and is stopped." in sentence


def different_collectives():
    tensor = torch.ones(4, device="hpu")
    if dist.get_rank() == 0:
        dist.all_reduce(tensor)
    else:
        dist.recv(tensor, 0)


def test_ranks_in_different_collectives_are_reported(launch):
    ranks = launch(2)
    ranks(join, TIMEOUT)
    ranks.ask(different_collectives)
    first, second = (last_line(ranks.answer(rank, 100)[1]) for rank in (0, 1))
    assert f"rank 1 (process {ranks.pids[1]}) was in recv instead" in first
    assert f"rank 0 (process {ranks.pids[0]}) was in all_reduce number 1 instead" in second


def train_or_leave():
    parallel = nn.parallel.DistributedDataParallel(nn.Linear(4, 4).to("hpu"))
    if dist.get_rank() == 1:
        dist.destroy_process_group()  # the module still uses the group
    else:
        parallel(torch.ones(1, 4, device="hpu")).sum().backward()


def test_leaving_rank_ends_the_backward_pass_of_the_others(launch):
    ranks = launch(2)
    ranks(join)
    ranks.ask(train_or_leave)
    sentence = last_line(ranks.answer(0, 100)[1])
    assert f"failed on rank 0 (process {ranks.pids[0]}): a rank has left the group" in sentence
    assert ranks.answer(1, 100) == (None, "")


def create_group(backend, signal_to=()):
    """Create a group on rank 0, and send a signal to a process while it waits for rank 1."""
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.get("started")
        time.sleep(0.5)
        if signal_to:
            os.kill(*signal_to)
        time.sleep(60)
    store.set("started", "")
    dist.new_group(backend=backend)


GROUPS = pytest.mark.parametrize("backend", ["hccl", "cpu:gloo,hpu:hccl"])


@GROUPS
def test_rank_that_ends_before_it_creates_a_group_is_reported(launch, backend):
    ranks = launch(2)
    ranks(join)
    ranks.ask(create_group, backend, (ranks.pids[1], signal.SIGKILL))
    sentence = last_line(ranks.answer(0, 20)[1])
    assert f"could not be created on rank 0 (process {ranks.pids[0]})" in sentence
    assert sentence.endswith(f"rank 1 (process {ranks.pids[1]}) has ended. Start all ranks again.")


@GROUPS
def test_missing_rank_of_a_new_group_is_reported_after_the_timeout(launch, backend):
    ranks = launch(2)
    ranks(join, TIMEOUT)
    ranks.ask(create_group, backend)
    sentence = last_line(ranks.answer(0, 20)[1])
    assert sentence.endswith(f": rank 1 did not join it within {TIMEOUT} s.")


@GROUPS
def test_waiting_for_the_ranks_of_a_new_group_can_be_interrupted(launch, backend):
    ranks = launch(2)
    ranks(join)
    ranks.ask(create_group, backend, (ranks.pids[0], signal.SIGINT))
    assert last_line(ranks.answer(0, 20)[1]) == "KeyboardInterrupt"
