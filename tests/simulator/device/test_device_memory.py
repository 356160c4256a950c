"""Test memory of tensors on the device, and its counters."""

import gc

import pytest
import torch
from habana_frameworks.torch import core as htcore


def in_use():
    gc.collect()
    htcore.mark_step()  # lazy mode allocates on execution
    return torch.hpu.memory_allocated()


def test_memory_in_use_is_the_size_of_live_storages():
    before = in_use()
    tensor = torch.randn(1000, device="hpu")
    assert in_use() - before == 4000
    row = tensor.view(10, 100)[2]
    assert in_use() - before == 4000
    del tensor
    assert in_use() - before == 4000
    del row
    assert in_use() == before


@pytest.mark.parametrize(
    "loss",
    [
        *("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"),
        *("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss"),
    ],
)
def test_reduced_loss_uses_the_memory_of_one_number(loss):
    x, y = torch.rand(2, 500, 1000).to("hpu")
    before = in_use()
    result = getattr(torch.nn.functional, loss)(x, y)
    assert in_use() - before == 4
    assert result.untyped_storage().nbytes() == 4
    assert result.item() == pytest.approx(
        getattr(torch.nn.functional, loss)(x.cpu(), y.cpu()).item(), rel=1e-5
    )


@pytest.mark.parametrize("loss", ["mse_loss", "smooth_l1_loss"])
def test_output_of_a_reduced_loss_keeps_its_memory(loss):
    x, y = torch.rand(2, 500, 1000).to("hpu")
    out = torch.zeros((), device="hpu")
    before = in_use()
    getattr(torch.ops.aten, loss).out(x, y, out=out)
    assert in_use() == before
    assert out.item() == getattr(torch.nn.functional, loss)(x, y).item()


def test_peak_and_allocations_are_counted():
    before = in_use()
    torch.hpu.reset_accumulated_memory_stats()
    torch.hpu.reset_peak_memory_stats()
    assert torch.hpu.max_memory_allocated() == 0
    tensors = [torch.zeros(1 << 20, dtype=torch.uint8, device="hpu") for _ in range(3)]
    htcore.mark_step()
    del tensors
    stats = torch.hpu.memory_stats()
    assert stats["MaxInUse"] - before == 3 << 20
    assert stats["MaxAllocSize"] == 1 << 20
    assert (stats["NumAllocs"], stats["NumFrees"], stats["ActiveAllocs"]) == (3, 3, 0)
    assert torch.hpu.mem_get_info() == (stats["Limit"] - before, stats["Limit"])
    assert list(stats) == [
        *("Limit", "InUse", "MaxInUse", "NumAllocs", "NumFrees", "ActiveAllocs", "MaxAllocSize"),
        *("TotalSystemAllocs", "TotalSystemFrees", "TotalActiveAllocs"),
    ]


def test_memory_summary_has_the_vendors_rows():
    lines = torch.hpu.memory_summary().splitlines()
    assert "PyTorch HPU memory summary, device ID" in lines[1]
    assert [line[1:].split()[0] for line in lines[3:-1]] == [
        *("Limit", "InUse", "MaxInUse", "NumAllocs", "NumFrees", "MaxAllocSize", "ActiveAllocs")
    ]
    assert len({len(line) for line in lines}) == 1


def test_shrunk_storage_keeps_its_first_values():
    htcore.mark_step()
    before = torch.hpu.memory_allocated()
    x = torch.arange(2000.0).to("hpu")
    x.add_(1)
    storage = x.untyped_storage()
    storage.resize_(16_000)
    storage.resize_(800)
    assert x[:200].tolist() == torch.arange(1.0, 201).tolist()
    assert torch.hpu.memory_allocated() - before == 800
    x[:200].mul_(2)
    storage.resize_(0)
    storage.resize_(8000)
    assert torch.hpu.memory_allocated() - before == 8000
    assert x.fill_(3).sum().item() == 6000


@pytest.mark.parametrize("query", ["empty_cache", "memory_allocated", "get_memory_info"])
def test_accelerator_refuses_memory_functions(query):
    if not hasattr(torch.accelerator, query):
        pytest.skip("this PyTorch release does not have the function")
    with pytest.raises(RuntimeError, match="Allocator for hpu is not a DeviceAllocator"):
        getattr(torch.accelerator, query)()


def test_accelerator_empties_the_cache_of_pinned_memory():
    memory = getattr(torch.accelerator, "memory", None)
    if not hasattr(memory, "empty_host_cache"):
        pytest.skip("this PyTorch release does not have the function")
    pinned = torch.arange(3).pin_memory()
    assert memory.empty_host_cache() is None
    assert pinned.is_pinned()
    assert pinned.tolist() == [0, 1, 2]
