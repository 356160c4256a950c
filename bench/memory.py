"""Difference between the device memory in use and the size of live storages, in bytes."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import torch
from torch import nn

from bench.harness import Figure
from bench.training import CNN_BATCH, TRANSFORMER_BATCH, cnn, training_step, transformer_layer


def live_bytes() -> int:
    """Return the total size of all storages on the device that are reachable from Python."""
    sizes = {}
    for found in gc.get_objects():
        if issubclass(type(found), torch.Tensor):
            for tensor in (found, found.grad if found.is_leaf else None):
                if tensor is not None and tensor.device.type == "hpu":
                    storage = tensor.untyped_storage()
                    sizes[storage._cdata] = storage.nbytes()
    return sum(sizes.values())


def mixed_work() -> list[object]:
    """Run operations that allocate and free memory in many ways, and return the live objects."""
    kept: list[object] = []
    for build, batch in ((cnn, CNN_BATCH), (transformer_layer, TRANSFORMER_BATCH)):
        step = training_step(build, batch, "hpu")
        for _ in range(3):
            step()
        kept.append(step)
    base = torch.randn(1000, 100, device="hpu")
    kept += [base[3:7], base.T, base.view(-1)[::7], base.to(torch.bfloat16), base.unique()]
    grown = torch.empty(0, device="hpu")
    torch.add(base, 1, out=grown)
    kept.append(grown.resize_(10))
    weight = nn.Parameter(torch.randn(100, 10, device="hpu"))
    (base @ weight).logsumexp(1).sum().backward()
    kept += [weight, torch.zeros(64, device="hpu").bool(), [t * 2 for t in base.split(100)]]
    for wrong in (lambda: base @ base, lambda: base + torch.ones(1000, 100)):
        try:
            wrong()
        except RuntimeError:
            kept.append(torch.ones(3, device="hpu"))
    return kept


def figures() -> Iterator[Figure]:
    torch.zeros(1, device="hpu")
    gc.collect()
    before = torch.hpu.memory_allocated() - live_bytes()
    kept = mixed_work()
    gc.collect()
    unexplained = torch.hpu.memory_allocated() - before - live_bytes()
    yield Figure("memory in use - live storages", abs(unexplained), "bytes", 0)
    kept.clear()
