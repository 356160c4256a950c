"""Test collectives that are captured in HPU Graphs."""

from __future__ import annotations

import copy
import os
import threading

import pytest
import torch
import torch.distributed as dist
from ranks import join
from torch import nn

_FLAG = {"PT_HPU_LAZY_MODE": "1", "PT_HPU_ENABLE_LAZY_COLLECTIVES": "true"}


@pytest.fixture(scope="module")
def capturing(server):
    """Two ranks that can capture collectives."""
    ranks = server.start(2, **_FLAG)
    ranks(join)
    yield ranks
    ranks.close()


def all_reduce(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def collective_without_a_result_on_this_rank(x):
    y = x + 1
    dist.reduce(y, dst=1)
    dist.broadcast(y, src=1)
    return y * 2


def collective_of_a_transposed_tensor(x):
    y = (x * 3).t()
    dist.all_reduce(y)
    return y.contiguous()


def gathered(x):
    parts = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(parts, x + 1)
    whole = torch.empty(2 * len(x), *x.shape[1:], device="hpu")
    dist.all_gather_into_tensor(whole, x)
    return torch.cat([*parts, whole])


def scattered(x):
    half = torch.empty_like(x[: len(x) // 2])
    dist.reduce_scatter_tensor(half, x * 2)
    exchanged = torch.empty_like(x)
    dist.all_to_all_single(exchanged, x.exp())
    return half.sum() + exchanged


def concurrent_with_operations(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x @ x.t()
    work.wait()
    return y.sum() + z


def one_after_another(x):
    y, z = x * 2, x * 3
    for _ in range(3):
        dist.all_reduce(y)
    dist.all_reduce(z)
    dist.barrier()
    return y + z


def messages_in_both_directions(x):
    other = 1 - dist.get_rank()
    sent, received = x + 1, torch.empty_like(x)
    calls = [dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, received, other)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return received * 2


def message_before_its_reply(x):
    other = 1 - dist.get_rank()
    received = torch.empty_like(x)
    work = dist.isend(x + 1, other)
    y = x.exp()
    dist.recv(received, other)
    work.wait()
    return received + y


def functional(x):
    import torch.distributed._functional_collectives as functional

    y = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
    return functional.all_gather_tensor(y + dist.get_rank(), 0, dist.group.WORLD) + 1


def tensor_that_changes_later(x):
    y, z = x * 2, x * 3
    dist.all_reduce(y)
    dist.all_reduce(z)
    results = y + 1, z + 1
    y.t_()
    z.set_(torch.zeros(3, device="hpu"))
    return sum(results)


def lists_of_tensors(x):
    parts = list(torch.empty(2, len(x) // 2, 4, device="hpu"))
    dist.all_to_all(parts, list((x * 2).chunk(2)))
    return torch.cat(parts) + 1


def result_between_other_elements(x):
    whole = torch.zeros(4, 8, device="hpu")
    dist.all_gather([whole[:, 1::2], torch.empty(4, 4, device="hpu")], x * 2)
    return whole + 1


def collective_that_nothing_waits_for(x):
    y = x * 2
    dist.all_reduce(y, async_op=True)
    return y


FUNCTIONS = [
    tensor_that_changes_later,
    lists_of_tensors,
    result_between_other_elements,
    collective_that_nothing_waits_for,
    all_reduce,
    collective_without_a_result_on_this_rank,
    collective_of_a_transposed_tensor,
    gathered,
    scattered,
    concurrent_with_operations,
    one_after_another,
    messages_in_both_directions,
    message_before_its_reply,
    functional,
]


def replayed(name, keeps_intermediates):
    import habana_frameworks.torch as htorch

    function = globals()[name]
    inputs = [torch.randn(4, 4) + dist.get_rank() for _ in range(3)]
    expected = [waited(function(each.to("hpu"))) for each in inputs]
    if keeps_intermediates:
        x, graph = inputs[0].to("hpu"), torch.hpu.HPUGraph()
        with torch.hpu.graph(graph):
            result = function(x)

        def run(value):
            x.copy_(value)
            graph.replay()
            return result

    else:
        run = htorch.hpu.wrap_in_hpu_graph(Function(function), disable_tensor_cache=True)
    found = [waited(run(each.to("hpu"))) for each in inputs]
    return [torch.equal(one, other) for one, other in zip(found, expected, strict=True)]


def waited(result):
    torch.hpu.synchronize()
    return result.cpu()


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("keeps_intermediates", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_replays_equal_the_function(capturing, function, keeps_intermediates):
    found = capturing(replayed, function.__name__, keeps_intermediates)
    assert found == [[True] * 3] * 2


class RowParallel(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        dist.all_reduce(y)
        return y + x


def wrapped(options):
    import habana_frameworks.torch as htorch

    torch.manual_seed(dist.get_rank())
    model = RowParallel().to("hpu").eval()
    captured = htorch.hpu.wrap_in_hpu_graph(copy.deepcopy(model), **options)
    with torch.no_grad():
        for rows in (2, 3, 2, 3):
            x = torch.randn(rows, 8).to("hpu")
            torch.testing.assert_close(captured(x).cpu(), model(x).cpu(), rtol=0, atol=0)
    return torch.hpu.memory_allocated()


@pytest.mark.parametrize("options", [{}, {"disable_tensor_cache": True}, {"asynchronous": True}])
def test_modules_with_collectives_can_be_wrapped(capturing, options):
    capturing(wrapped, options)


def layers():
    torch.manual_seed(0)
    sizes = [(64, 64), (64, 64), (64, 4)]
    model = nn.Sequential(*(nn.Linear(*each) for each in sizes)).to("hpu")
    return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)


def propagation(model, x):
    """Return a function that runs both passes, whose graph was captured, and the loss."""
    graph = torch.hpu.HPUGraph()
    model.zero_grad()
    with torch.hpu.graph(graph):
        loss = model(x).square().mean()
        loss.backward()
    return graph.replay, loss


def trained(captures):
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, replay, loss = torch.empty(8, 64, device="hpu"), None, None
    losses = []
    for number in range(6):
        x.copy_(torch.randn(8, 64) + dist.get_rank())
        if captures and number == 3:  # DDP has made its final buckets
            replay, loss = propagation(model, x)
        if replay is None:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
        else:
            replay()
        optimizer.step()
        losses.append(loss.item())
    return losses, [each.tolist() for each in model.parameters()]


def test_passes_of_ddp_can_be_captured(capturing):
    expected, captured = capturing(trained, False), capturing(trained, True)
    assert captured[0][1] == captured[1][1]
    assert captured == expected


def steps_on_the_clock():
    """Return the time of a step that runs, and of a replay, on the card and on its links."""
    from hpu_magic.simulator import card_time

    card_time.start()
    model, x = layers(), torch.randn(2048, 64).to("hpu")

    def run():
        model(x).square().mean().backward()

    for _ in range(3):
        run()
        model.zero_grad()
    replay, _ = propagation(model, x)
    readings = []
    for step in (run, replay):
        torch.hpu.synchronize()
        card_time._links.end_step()
        before = card_time.read()
        step()
        torch.hpu.synchronize()
        after = card_time.read()
        readings.append((after.card - before.card, after.busy["links"] - before.busy["links"]))
        model.zero_grad()
    assert not card_time.read().unpriced
    card_time.stop()
    return readings


def test_replays_take_the_time_of_their_collectives(capturing):
    for run, replay in capturing(steps_on_the_clock):
        assert replay == pytest.approx(run, rel=0.05)


def failing():
    """Replay a graph that fails before its second collective, and then with a valid index."""
    x, index = torch.ones(4, device="hpu"), torch.zeros(1, dtype=torch.int64, device="hpu")
    kept, graph = torch.ones(1, device="hpu"), torch.hpu.HPUGraph()
    with torch.hpu.graph(graph):
        y = x * 2
        dist.all_reduce(y, async_op=True)
        z = torch.nn.functional.embedding(index, x.unsqueeze(1))
        dist.all_reduce(z)
        result = z + 1
        kept += 1
    index.fill_(9)
    with pytest.raises(IndexError, match="out of"):
        graph.replay()
    with pytest.raises(RuntimeError, match="never computed"):
        result.cpu()
    index.fill_(0)
    graph.replay()
    return y.tolist(), result.tolist(), kept.tolist()


def test_results_after_a_failed_operation_raise_its_error(capturing):
    assert capturing(failing) == [([4.0] * 4, [[3.0]], [3.0])] * 2


def reset_during_a_replay():
    x, graph, errors = torch.ones(4, device="hpu"), torch.hpu.HPUGraph(), []
    with torch.hpu.graph(graph):
        dist.all_reduce(x)
    if dist.get_rank() == 0:
        thread = threading.Thread(target=graph.replay)
        thread.start()
        while not errors:
            try:
                graph._native.free_for_backward()
            except RuntimeError as error:
                errors.append(str(error))
        for changes in (graph.reset, graph.replay, graph.capture_begin):
            with pytest.raises(RuntimeError, match="Another thread is replaying"):
                changes()
        dist.distributed_c10d._get_default_store().set("tried", "yes")
        thread.join()
    else:
        dist.distributed_c10d._get_default_store().wait(["tried"])
        graph.replay()
    graph.reset()
    return x.tolist()


def test_graph_cannot_change_while_a_replay_waits(capturing):
    assert capturing(reset_during_a_replay) == [[4.0] * 4] * 2


def replayed_during_another_capture():
    x, replayed, other = torch.ones(4, device="hpu"), torch.hpu.HPUGraph(), torch.hpu.HPUGraph()
    with torch.hpu.graph(replayed):
        y = x * 2
        dist.all_reduce(y)
    other.capture_begin()
    z = x + 1
    with pytest.raises(RuntimeError, match="Capture in progress"):
        replayed.replay()
    other.capture_end()
    replayed.replay()
    return y.tolist(), z.tolist(), other._native.operations()


def test_replay_is_refused_during_a_capture(capturing):
    found = capturing(replayed_during_another_capture)
    assert found == [([4.0] * 4, [2.0] * 4, ["aten::add.Tensor"])] * 2


def value_after_wait():
    x = torch.ones(4, device="hpu")
    for _ in range(200):
        work = dist.all_reduce(x * 2, async_op=True)
        future = work.get_future()
        work.wait()
        assert future.value()[0].tolist() == [4.0] * 4


def test_future_has_its_value_when_wait_returns(capturing):
    capturing(value_after_wait)


def in_a_forked_process():
    x = torch.ones(4, device="hpu")
    end, other_end = os.pipe()
    if (child := os.fork()) == 0:
        try:
            dist.all_reduce(x)
        except RuntimeError as error:
            os.write(other_end, str(error).encode())
        finally:
            os._exit(0)
    os.close(other_end)
    with os.fdopen(end) as answer:
        message = answer.read()
    os.waitpid(child, 0)
    dist.all_reduce(x)
    return message, x.tolist()


def test_forked_process_cannot_use_the_group(capturing):
    for message, values in capturing(in_a_forked_process):
        assert "was forked from process" in message
        assert values == [2.0] * 4


def refused():
    x, graph = torch.ones(4, device="hpu"), torch.hpu.HPUGraph()

    def read():
        dist.all_reduce(x)
        return x.sum().item()

    with pytest.raises(RuntimeError, match="host is not supported"), torch.hpu.graph(graph):
        read()
    dist.all_reduce(x)
    return x.tolist()


def test_refused_operation_after_a_collective_ends_the_capture(capturing):
    assert capturing(refused) == [[4.0] * 4] * 2


def after_the_end_of_the_group():
    group = dist.new_group([0, 1])
    x, graph = torch.ones(4, device="hpu"), torch.hpu.HPUGraph()
    with torch.hpu.graph(graph):
        dist.all_reduce(x, group=group)
    dist.destroy_process_group(group)
    try:
        graph.replay()
    except RuntimeError as error:
        return str(error)
    return x.tolist()  # older releases of PyTorch leave the group connected


def test_graph_outlives_its_process_group(capturing):
    for found in capturing(after_the_end_of_the_group):
        assert found == [4.0] * 4 or "can no longer run collectives" in found


def names():
    graph = torch.hpu.HPUGraph()
    x = torch.ones(4, device="hpu")
    with torch.hpu.graph(graph):
        y = x * 2
        dist.all_reduce(y)
    return graph._native.operations()


def test_collectives_are_operations_of_the_graph(capturing):
    assert capturing(names) == [["aten::mul.Tensor", "c10d::allreduce_"]] * 2
