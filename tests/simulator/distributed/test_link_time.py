"""Test collectives on the clock of the simulated card, in groups of two ranks."""

import pytest
import torch
import torch.distributed as dist
from ranks import join
from torch import nn

from hpu_magic import estimate_collective

SIZE = 1 << 20
SECONDS = estimate_collective("all_reduce", 4 * SIZE, cards=2).seconds


@pytest.fixture(scope="module")
def eager(server):
    """Two ranks in eager mode."""
    ranks = server.start(2)
    ranks(join)
    yield ranks
    ranks.close()


def clock():
    """Start the clocks of all ranks at the same time."""
    from hpu_magic.simulator import card_time

    dist.barrier()
    card_time.start(records=True)
    return card_time


def all_reduce():
    x = torch.ones(SIZE, device="hpu")
    card_time = clock()
    dist.all_reduce(x)
    torch.hpu.synchronize()
    reading = card_time.read()
    return reading.card, reading.host, reading.sent, reading.unpriced


def test_collective_takes_as_long_as_its_estimate(pair):
    for card, host, sent, unpriced in pair(all_reduce):
        assert card == host == pytest.approx(SECONDS)
        assert (sent, unpriced) == ({"all_reduce": 4 * SIZE}, {})


def other_collectives():
    rank = dist.get_rank()
    x, whole = torch.ones(SIZE, device="hpu"), torch.ones(2 * SIZE, device="hpu")
    parts = [*whole.chunk(2)]
    card_time = clock()
    dist.all_gather_into_tensor(whole, x)
    dist.all_gather(parts, x)
    dist.reduce_scatter_tensor(x, whole)
    dist.all_to_all_single(whole, torch.ones_like(whole))
    dist.broadcast(x, 0)
    dist.reduce(x, 1)
    dist.gather(x, parts if rank == 0 else None)
    dist.scatter(x, parts if rank == 0 else None)
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    reading = card_time.read()
    return reading.sent, reading.unpriced


def test_all_kinds_of_collectives_have_a_price(eager):
    whole = 8 * SIZE
    common = {"all_gather": whole, "reduce_scatter": whole // 2, "all_to_all": whole // 2}
    common |= {"gather": whole // 2, "scatter": whole // 2}
    common |= {"broadcast": whole // 2, "reduce": whole // 2}
    first, second = eager(other_collectives)
    assert first == (common | {"send": whole // 2}, {})
    assert second == (common | {"recv": 0}, {})


def after_slow_rank():
    x, y = torch.ones(SIZE, device="hpu"), torch.ones(256, 256, device="hpu")
    card_time = clock()
    for _ in range(100 * dist.get_rank()):
        y = y @ y
    before = card_time.read().card
    dist.all_reduce(x)
    return before, card_time.read().card


def test_collective_ends_when_the_slowest_rank_has_arrived(eager):
    (none, first), (slowest, second) = eager(after_slow_rank)
    assert none == 0 < slowest
    assert first == second == pytest.approx(slowest + SECONDS)


def message_of_slow_rank():
    rank = dist.get_rank()
    x, y = torch.ones(SIZE, device="hpu"), torch.ones(256, 256, device="hpu")
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)  # sent while the clocks are off
    card_time = clock()
    for _ in range(100 * (1 - rank)):
        y = y @ y
    before = card_time.read().card
    if rank == 0:
        dist.send(x, 1, tag=7)
    else:
        dist.recv(x, 0, tag=7)
    return before, card_time.read().card


def test_message_is_received_after_its_sender_was_ready(eager):
    (slow, sent), (none, received) = eager(message_of_slow_rank)
    assert none == 0 < slow
    seconds = sent - slow
    assert seconds > 0
    assert received == pytest.approx(slow + seconds)


def messages_in_another_order():
    rank = dist.get_rank()
    x, y = torch.ones(SIZE, device="hpu"), torch.ones(256, 256, device="hpu")
    card_time = clock()
    if rank == 0:
        works = []
        for tag in (1, 2, 1):
            y @ y
            works.append(dist.isend(x, 1, tag=tag))
        ready = [each.start for each in card_time.take_records() if each.name == "send"]
    else:
        works = [dist.irecv(torch.empty_like(x), 0, tag=tag) for tag in (2, 1, 1)]
        ready = []
        for work in works:
            work.wait()
            ready.append(card_time.read().card)
    for work in works:
        work.wait()
    return ready


def test_tags_identify_messages(eager):
    sent, received = eager(messages_in_another_order)
    first, second, third = sent
    assert first < second < third
    seconds = received[0] - second
    assert seconds > 0
    assert received == pytest.approx([second + seconds, second + seconds, third + seconds])


def messages_of_slow_rank():
    rank = dist.get_rank()
    x, y = (torch.ones(SIZE, device="hpu") for _ in range(2))
    z = torch.ones(256, 256, device="hpu")
    card_time = clock()
    for _ in range(100 * rank):
        z = z @ z
    before = card_time.read().card
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]
    )
    for work in works:
        work.wait()
    return before, card_time.read().card


def test_batch_of_messages_ends_when_the_last_one_was_received(eager):
    (none, first), (slow, second) = eager(messages_of_slow_rank)
    assert none == 0 < slow
    assert first == pytest.approx(second)
    assert first > slow


def beside_matmuls():
    x, y = torch.ones(SIZE, device="hpu"), torch.ones(512, 512, device="hpu")
    found = []
    for count in (1, 100):
        card_time = clock()
        work = dist.all_reduce(x, async_op=True)
        for _ in range(count):
            y @ y
        before = card_time.read().card
        work.wait()
        found.append((before, card_time.read().card))
    return found


def test_asynchronous_collective_overlaps_operators_until_it_is_waited_for(eager):
    for few, many in eager(beside_matmuls):
        assert few[0] < few[1] == pytest.approx(SECONDS)
        assert SECONDS < many[0] == many[1]


def two_at_once():
    x, y = (torch.ones(SIZE, device="hpu") for _ in range(2))
    card_time = clock()
    works = [dist.all_reduce(each, async_op=True) for each in (x, y)]
    for work in works:
        work.wait()
    alone = card_time.read().card
    card_time = clock()
    with dist._coalescing_manager(device=torch.device("hpu"), async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)
    manager.wait()
    return alone, card_time.read().card


def test_collectives_use_the_links_one_after_the_other(eager):
    for seconds in eager(two_at_once):
        assert seconds == pytest.approx((2 * SECONDS, 2 * SECONDS))


def trained():
    model = nn.Linear(512, 512, bias=False, device="hpu")
    model = nn.parallel.DistributedDataParallel(model)
    x = torch.ones(8, 512, device="hpu")
    card_time = clock()
    model(x).sum().backward()
    return card_time.read().sent, [
        (each.seconds, each.parts["links"])
        for each in card_time.take_records()
        if each.name == "all_reduce"
    ]


def test_gradients_of_ddp_add_a_part_of_their_time(eager):
    from hpu_magic.estimates.cost.constants import FITTED

    size = 4 * 512 * 512
    seconds = estimate_collective("all_reduce", size, cards=2).seconds
    for sent, records in eager(trained):
        assert sent == {"all_reduce": size}
        assert records == [pytest.approx((FITTED.exchange["ddp"] * seconds, seconds))]
