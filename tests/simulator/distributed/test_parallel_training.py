"""Test DDP, FSDP and tensor parallelism on two cards against the same training on the CPU."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

ROWS = 8


def model(width=16):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 4)
    )


def batches(count=3):
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(ROWS, 8, generator=generator),
            torch.randint(0, 4, (ROWS,), generator=generator),
        )
        for _ in range(count)
    ]


def own_rows(tensor):
    """Return this rank's rows of a batch."""
    return tensor.chunk(dist.get_world_size())[dist.get_rank()]


def trained(module, device, share=own_rows, no_sync=False):
    """Train for three steps and return the mean losses of all ranks."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for i, (data, labels) in enumerate(batches()):
        optimizer.zero_grad()
        if no_sync and i == 1:
            with module.no_sync():
                loss_of(module, data, labels, device, share).backward()
        loss = loss_of(module, data, labels, device, share)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def loss_of(module, data, labels, device, share):
    return nn.functional.cross_entropy(module(share(data).to(device)), share(labels).to(device))


def assert_equal_parameters(one, other):
    for found, expected in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found.detach().cpu(), expected.detach())


DDP = {
    "plain": {},
    "views": {"gradient_as_bucket_view": True},
    "small buckets": {"bucket_cap_mb": 0.0005, "gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
    "a list with one device": {"device_ids": [0]},
}


def ddp(name, no_sync):
    modules = {}
    for device in ("cpu", "hpu"):
        options = dict(DDP[name])
        if device == "cpu":
            options.pop("device_ids", None)
        parallel = nn.parallel.DistributedDataParallel(model().to(device), **options)
        modules[device] = parallel, trained(parallel, device, no_sync=no_sync)
    assert_equal_parameters(modules["hpu"][0], modules["cpu"][0])
    assert modules["hpu"][1] == pytest.approx(modules["cpu"][1])
    return modules["hpu"][1]


@pytest.mark.parametrize("name", DDP)
def test_ddp_training_equals_the_cpu(pair, name):
    one, other = pair(ddp, name, name in ("plain", "small buckets"))
    assert one == other


class Switch(nn.Module):
    """A module that uses one of its layers per call."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 4) for _ in range(2))

    def forward(self, data, which):
        return self.layers[which](data)


def unused_parameters():
    found = {}
    for device in ("cpu", "hpu"):
        parallel = nn.parallel.DistributedDataParallel(
            Switch().to(device), find_unused_parameters=True
        )
        for step in range(3):
            parallel(torch.ones(2, 8, device=device), (dist.get_rank() + step) % 2).sum().backward()
        parallel(torch.ones(2, 8, device=device), 0).sum().backward()
        found[device] = [
            None if each.grad is None else each.grad.tolist() for each in parallel.parameters()
        ]
    assert found["hpu"] == found["cpu"]


def test_ddp_supports_unused_parameters(pair):
    pair(unused_parameters)


def comm_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def doubled(state, bucket):
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda future: future.value()[0] * 2)

    weights = {}
    for name, hook in {
        "all-reduce": default_hooks.allreduce_hook,
        "fp16": default_hooks.fp16_compress_hook,
        "own": doubled,
        "power": powerSGD_hook.powerSGD_hook,
        "built in": dist.BuiltinCommHookType.FP16_COMPRESS,
    }.items():
        for device in ("cpu", "hpu"):
            parallel = nn.parallel.DistributedDataParallel(model().to(device))
            state = (
                powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
                if name == "power"
                else None
            )
            if name == "built in":
                parallel._register_builtin_comm_hook(hook)
            else:
                parallel.register_comm_hook(state, hook)
            trained(parallel, device)
            weights[device] = [each.detach().cpu() for each in parallel.parameters()]
        for each, other in zip(weights["hpu"], weights["cpu"], strict=True):
            torch.testing.assert_close(each, other, rtol=1e-2, atol=1e-3, msg=name)


def test_ddp_supports_communication_hooks(pair):
    pair(comm_hooks)


def train_on_all_rows(module, device):
    """Train on all rows of each batch."""
    return trained(module, device, share=lambda tensor: tensor)


def fsdp(dtype):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("hpu", (2,))
    sharded = model().to("hpu")
    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        if dtype == "bf16"
        else MixedPrecisionPolicy()
    )
    for layer in sharded:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(sharded, mesh=mesh, mp_policy=policy)
    losses = trained(sharded, "hpu")
    reference = model()
    expected = train_on_all_rows(reference, "cpu")
    close = {"rtol": 5e-2, "atol": 5e-2} if dtype == "bf16" else {"rtol": 1e-4, "atol": 1e-5}
    assert losses == pytest.approx(expected, rel=close["rtol"])
    for parameter, other in zip(sharded.parameters(), reference.parameters(), strict=True):
        assert parameter.device.type == "hpu"
        assert parameter.to_local().numel() <= other.numel() // 2
        torch.testing.assert_close(parameter.full_tensor().cpu(), other.detach(), **close)


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_fully_sharded_training_equals_unsharded_training(pair, dtype):
    pair(fsdp, dtype)


def compiled_optimizer():
    """Update shards with a compiled function, and compare them with the CPU's weights."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    sharded, reference = model().to("hpu"), model()
    fully_shard(sharded, mesh=init_device_mesh("hpu", (2,)))
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.1) for each in (sharded, reference)]
    update = torch.compile(optimizers[0].step, backend="hpu_backend")
    for _ in range(3):
        for network, step in zip((sharded, reference), (update, optimizers[1].step), strict=True):
            device = next(network.parameters()).device
            network(torch.ones(2, 8, device=device)).sum().backward()
            step()
            network.zero_grad()
    for parameter, other in zip(sharded.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.full_tensor().cpu(), other.detach())


def test_compiled_optimizer_updates_sharded_weights(pair, request):
    if "lazy" in request.node.name:
        pytest.skip("lazy mode has no compiled graphs")
    pair(compiled_optimizer)


def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("hpu", (2,), mesh_dim_names=("tp",))
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    torch.manual_seed(0)
    for layer in network[::2]:
        layer.reset_parameters()
    reference = [each.detach().clone() for each in network.parameters()]
    split = parallelize_module(
        network.to("hpu"), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    assert split[0].weight.placements == (Shard(0),)
    losses = train_on_all_rows(split, "hpu")
    plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    for parameter, value in zip(plain.parameters(), reference, strict=True):
        parameter.data.copy_(value)
    assert losses == pytest.approx(train_on_all_rows(plain, "cpu"))

    rows = torch.arange(12.0).view(6, 2)
    spread = distribute_tensor(rows.to("hpu"), mesh, [Shard(0)])
    assert isinstance(spread, DTensor)
    torch.testing.assert_close(spread.to_local().cpu(), own_rows(rows))
    other = spread.redistribute(mesh, [Shard(1)])
    torch.testing.assert_close(other.to_local().cpu(), rows[:, dist.get_rank()][:, None])
    total = (spread * 2).sum()
    assert total.full_tensor().item() == 2 * rows.sum().item()
    assert (spread @ other.t().redistribute(mesh, [Replicate()])).full_tensor().shape == (6, 6)


def test_tensor_parallel_training_equals_one_process(pair):
    pair(tensor_parallel)


def hybrid_sharding():
    """Train with two replicas of two shards each."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("hpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    assert mesh["shard"].size() == 2
    sharded = model().to("hpu")
    fully_shard(sharded, mesh=mesh)
    losses = trained(sharded, "hpu")
    reference = model()
    assert losses == pytest.approx(train_on_all_rows(reference, "cpu"), rel=1e-4)


def test_hybrid_sharded_training_equals_one_process(four):
    four(hybrid_sharding)


def sharded_checkpoint(folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("hpu", (2,))

    def sharded(seed):
        module = model().to("hpu")
        torch.manual_seed(seed)
        for parameter in module.parameters():
            nn.init.normal_(parameter)
            dist.broadcast(parameter.data, 0)
        return fully_shard(module, mesh=mesh)

    saved, loaded = sharded(1), sharded(2)
    dcp.save({"model": get_model_state_dict(saved)}, checkpoint_id=folder)
    state = {"model": get_model_state_dict(loaded)}
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(loaded, state["model"])
    full = []
    for each, other in zip(saved.parameters(), loaded.parameters(), strict=True):
        full.append(each.full_tensor().cpu())
        assert torch.equal(full[-1], other.full_tensor().cpu())
    return [each.sum().item() for each in full]


def test_sharded_checkpoint_loads_on_the_cpu(pair, tmp_path):
    import torch.distributed.checkpoint as dcp

    folder = str(tmp_path / "checkpoint")
    sums, _ = pair(sharded_checkpoint, folder)
    plain = model()
    state = {"model": plain.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    assert [each.sum().item() for each in state["model"].values()] == pytest.approx(sums)


def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel

    sharded = FullyShardedDataParallel(model().to("hpu"), device_id=torch.device("hpu", 0))
    losses = trained(sharded, "hpu")
    assert losses == pytest.approx(train_on_all_rows(model(), "cpu"), rel=1e-4)


def test_fsdp1_training_equals_one_process(pair):
    pair(fsdp1)


def functional_collectives():
    """Call differentiable and functional collectives."""
    import torch.distributed._functional_collectives as functional
    from torch.distributed.nn import functional as through

    tensor = torch.full((2,), float(dist.get_rank() + 1), device="hpu", requires_grad=True)
    through.all_reduce(tensor * 2).sum().backward()
    assert tensor.grad.tolist() == [4.0, 4.0]
    plain = tensor.detach()
    summed = functional.all_reduce(plain, "sum", dist.group.WORLD)
    gathered = functional.all_gather_tensor(plain, 0, dist.group.WORLD)
    part = functional.reduce_scatter_tensor(gathered, "sum", 0, dist.group.WORLD)
    return [(each + 0).tolist() for each in (summed, gathered, part)]


def test_functional_collectives_return_their_results(pair):
    for rank, found in enumerate(pair(functional_collectives)):
        assert found == [[3.0, 3.0], [1.0, 1.0, 2.0, 2.0], [2.0 * (rank + 1)] * 2]


def compiled():
    import torch._dynamo as dynamo
    from torch._dynamo.testing import CompileCounterWithBackend

    def step(tensor):
        doubled = tensor * 2
        dist.all_reduce(doubled)
        return doubled + 1

    dynamo.reset()
    tensor = torch.full((3,), float(dist.get_rank() + 1), device="hpu")
    counter = CompileCounterWithBackend("hpu_backend")
    found = torch.compile(step, backend=counter)(tensor).tolist()

    parallel = nn.parallel.DistributedDataParallel(model().to("hpu"))
    reference = nn.parallel.DistributedDataParallel(model())
    losses = trained(torch.compile(parallel, backend="hpu_backend"), "hpu")
    assert losses == pytest.approx(trained(reference, "cpu"))
    assert_equal_parameters(parallel, reference)

    import torch.distributed._functional_collectives as functional

    inside = torch.compile(
        lambda tensor: functional.all_reduce(tensor * 2, "sum", dist.group.WORLD) + 1,
        backend="hpu_backend",
    )
    return found, counter.frame_count, inside(tensor).tolist()


def test_compiled_graphs_break_at_collectives(pair, request):
    if "lazy" in request.node.name:
        pytest.skip("lazy mode has no compiled graphs")
    for found in pair(compiled):
        assert found == ([7.0] * 3, 2, [7.0] * 3)


def random_operators_on(device):
    """Draw twice with one seed; return this rank's shard and the full tensor of each."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, rand, randn

    mesh = init_device_mesh(device, (2,))
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        weight = distribute_tensor(torch.zeros(8, 6), mesh, [Shard(0)])
        columns = distribute_tensor(torch.zeros(8, 6), mesh, [Shard(1)])
        same = distribute_tensor(torch.zeros(8, 6), mesh, [Replicate()])
        nn.init.normal_(weight)
        nn.init.kaiming_uniform_(columns)
        nn.init.uniform_(same)
        drawn = {
            "normal": weight,
            "kaiming": columns,
            "replicated": same,
            "rand": rand(8, 6, device_mesh=mesh, placements=[Shard(0)]),
            "randn": randn(5, 3, device_mesh=mesh, placements=[Shard(0)]),  # uneven
            "dropout": nn.functional.dropout(
                distribute_tensor(torch.ones(64, 64), mesh, [Shard(0)]), 0.25
            ),
            "again": nn.init.normal_(weight.clone()),
        }
        found.append(
            {
                name: (each.to_local().cpu().tolist(), each.full_tensor().cpu().tolist())
                for name, each in drawn.items()
            }
        )
        found[-1]["after"] = torch.rand(3, device=device).tolist()
    return found


def random_operators():
    return random_operators_on("hpu"), random_operators_on("cpu")


def draws_from_the_device():
    """Return whether DTensor uses the device's state; up to torch 2.8, it keeps its own."""
    from torch.distributed.tensor._random import OffsetBasedRNGTracker

    return hasattr(OffsetBasedRNGTracker, "_get_device_state")


def test_random_operators_draw_different_numbers_for_each_shard(pair):
    (first, first_cpu), (second, second_cpu) = pair(random_operators)
    if draws_from_the_device():
        for each, again in (first, second):
            assert each == again
    mine, other, on_cpu = first[0], second[0], first_cpu[0]
    assert mine.pop("after") == other.pop("after")
    on_cpu.pop("after")
    for name, (_, full) in mine.items():
        assert other[name][1] == full, name
        assert torch.tensor(full).shape == torch.tensor(on_cpu[name][1]).shape, name
    for name in ("normal", "kaiming", "rand", "dropout", "again"):
        assert mine[name][0] != other[name][0], name
    assert mine["replicated"][0] == other["replicated"][0]
    assert mine["normal"][1] != mine["again"][1]
    kept = torch.tensor(mine["dropout"][1])
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert 0.7 < kept.count_nonzero().item() / kept.numel() < 0.8
    for name, most in (("normal", 4.5), ("kaiming", 1.0), ("rand", 1.0), ("replicated", 1.0)):
        assert 0 < torch.tensor(mine[name][1]).abs().max() <= most, name
    # On the CPU, each rank draws from its own generator, so one seed gives equal shards.
    assert on_cpu["normal"][0] == second_cpu[0]["normal"][0]


def initialized_on_the_device():
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(5)
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4))
    for layer in (*module, module):
        fully_shard(layer)
    module.to_empty(device="hpu")
    for layer in module:
        getattr(layer, "reset_parameters", lambda: None)()
    with torch.no_grad():
        first = module(torch.ones(2, 8, device="hpu")).tolist()
    losses = trained(module.eval(), "hpu")
    shards = [each.to_local().cpu().tolist() for each in module.parameters()]
    full = [each.full_tensor().cpu().tolist() for each in module.parameters()]
    return first, losses, shards, full


def test_meta_modules_are_initialized_on_the_device(pair):
    one, other = pair(initialized_on_the_device)
    assert one[3] == other[3]
    assert one[1] == other[1]
    for mine, others in zip(one[2], other[2], strict=True):
        assert mine != others
    assert max(abs(value) for row in one[3][0] for value in row) < 1.0
    assert one[1][-1] < one[1][0] * 2


def random_state_contexts():
    torch.manual_seed(7)
    before = torch.hpu.get_rng_state()
    torch.hpu.set_rng_ctx("philox")
    state = torch.hpu.get_rng_state()
    torch.hpu.set_rng_state(state)
    torch.hpu.unset_rng_ctx("philox")
    unchanged = torch.equal(torch.hpu.get_rng_state(), before)
    torch.hpu.set_rng_ctx("philox")
    moved = state.clone()
    moved[8:].view(torch.int64).add_(16)
    torch.hpu.set_rng_state(moved)
    kept = torch.hpu.get_rng_state().tolist() == moved.tolist()
    with pytest.raises(RuntimeError, match=r"must have 16 bytes \(seed and offset\), but has"):
        torch.hpu.set_rng_state(before)
    torch.hpu.unset_rng_ctx("philox")
    drawn = torch.rand(2, device="hpu").tolist()
    with pytest.raises(ValueError, match="random number context 'mersenne'; use"):
        torch.hpu.set_rng_ctx("mersenne")
    with pytest.raises(ValueError, match="'mersenne'"):
        torch.hpu.unset_rng_ctx("mersenne")
    return state.tolist(), unchanged, kept, drawn


def test_philox_context_has_a_seed_and_an_offset(pair):
    one, other = pair(random_state_contexts)
    assert one == other
    assert one[:3] == ([7, *[0] * 15], True, True)


def failed_random_operator():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.utils.checkpoint import checkpoint

    sharded = distribute_tensor(torch.ones(8), init_device_mesh("hpu", (2,)), [Shard(0)])
    with pytest.raises(RuntimeError, match="uniform_ expects"):
        sharded.uniform_(1, 0)
    torch.rand(3, device="hpu")
    x = torch.ones(64, device="hpu", requires_grad=True)
    y = checkpoint(lambda v: nn.functional.dropout(v * v, 0.5), x, use_reentrant=False)
    y.sum().backward()
    return torch.equal(x.grad > 0, y > 0), torch.hpu.get_rng_state().numel()


def test_checkpoints_keep_their_masks_after_a_failed_random_operator(pair):
    assert pair(failed_random_operator) == [(True, torch.get_rng_state().numel())] * 2


def draws_from_another_generator():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    sharded = distribute_tensor(torch.ones(8), init_device_mesh("hpu", (2,)), [Shard(0)])
    generator = torch.Generator("hpu")
    torch.manual_seed(1)
    before = torch.hpu.get_rng_state()
    found = []
    for _ in range(2):
        generator.manual_seed(9)
        found.append([sharded.uniform_(generator=generator).full_tensor().tolist() for _ in "ab"])
    return found, torch.equal(torch.hpu.get_rng_state(), before)


def test_dtensor_uses_the_specified_generator(pair):
    if not draws_from_the_device():
        pytest.skip("this release of DTensor ignores generators")
    one, other = pair(draws_from_another_generator)
    assert one == other
    (first, again), untouched = one
    assert first == again
    assert first[0] != first[1]
    assert len(set(first[0])) == 8
    assert untouched
