"""Functions for ranks: models that are sharded or split over cards, compared with the CPU."""

import os
from typing import Any

import lightning.fabric as fabric
import torch
from fits_of_ranks import (
    BATCH,
    CLOSE,
    Net,
    check_same,
    dist_size,
    loader,
    plain_loader,
    rows,
    trainer,
)
from torch import nn

import hpu_magic.lightning as plugins


def sharded(folder: str) -> dict[str, float]:
    """Fit with FSDP1 in each precision, with offloading, meshes, and checkpoints for the CPU."""
    reference = Net()
    on_cpu = trainer("cpu")
    on_cpu.fit(reference, loader("cpu"), plain_loader("cpu"))
    expected = float(on_cpu.callback_metrics["val_loss"])
    losses = {}
    cases: dict[str, tuple[Any, str]] = {
        "fsdp": ("fsdp", "32-true"),
        "offloaded": ("fsdp_cpu_offload", "bf16-true"),
        "scaled": ("hpu_fsdp", "16-mixed"),
        "mesh": (
            plugins.HPUFSDPStrategy(
                auto_wrap_policy={nn.Linear},
                device_mesh=(1, dist_size()),
                sharding_strategy="HYBRID_SHARD",
            ),
            "bf16-mixed",
        ),
    }
    for name, (strategy, precision) in cases.items():
        model = Net()
        run = trainer("hpu", strategy=strategy, precision=precision)
        run.fit(model, loader("hpu"), plain_loader("hpu"))
        losses[name] = float(run.callback_metrics["val_loss"])
        assert type(run.precision_plugin) is plugins.HPUFSDPPrecision
        assert abs(losses[name] - expected) < (1e-5 if name == "fsdp" else 5e-3), losses
    assert run.strategy.model.module.body[0]._is_root is False  # each layer is wrapped
    path = os.path.join(folder, "sharded.ckpt")
    first = trainer("hpu", strategy="hpu_fsdp", max_epochs=1)
    first.fit(Net(), loader("hpu"))
    first.save_checkpoint(path)
    resumed = Net()
    trainer("cpu").fit(resumed, loader("cpu"), ckpt_path=path)
    check_same(resumed, reference)
    second_model = Net()
    second = trainer("hpu", strategy="hpu_fsdp")
    second.fit(second_model, loader("hpu"), plain_loader("hpu"), ckpt_path=path)
    assert abs(float(second.callback_metrics["val_loss"]) - expected) < 1e-5
    return losses


class Split(Net):
    """A model that splits layers over one dimension of its mesh, and rows over the other."""

    def configure_model(self):
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        mesh = self.device_mesh
        if mesh["tensor_parallel"].size() > 1:
            plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
            parallelize_module(self.body, mesh["tensor_parallel"], plan)
        if mesh["data_parallel"].size() > 1:
            for part in (self.body, self.head, self):
                fully_shard(part, mesh=mesh["data_parallel"])


def split(rows_over: int, layers_over: int, folder: str) -> tuple[float, int]:
    """Fit with FSDP2 and tensor parallelism; ranks in a row of the mesh share their batches."""
    reference = Net()
    clip = {"gradient_clip_val": 0.5} if layers_over == 1 else {}
    on_cpu = trainer("cpu", **clip)
    on_cpu.fit(reference, loader("cpu"), plain_loader("cpu"))
    size = BATCH // rows_over
    data = torch.utils.data.DataLoader(rows(), batch_size=size)
    sampler = torch.utils.data.DistributedSampler(
        rows(), rows_over, int(os.environ["RANK"]) // layers_over, shuffle=False
    )
    training = torch.utils.data.DataLoader(rows(), batch_size=size, sampler=sampler)
    strategy = plugins.HPUModelParallelStrategy(
        rows_over, layers_over, save_distributed_checkpoint=False
    )
    model = Split()
    run = trainer("hpu", strategy=strategy, **clip)
    run.fit(model, training, data)
    path = os.path.join(folder, f"{rows_over}-{layers_over}.ckpt")
    run.save_checkpoint(path)
    loaded = Net()
    loaded.load_state_dict(torch.load(path, weights_only=False)["state_dict"])
    check_same(loaded, reference)
    shard_size = model.body[0].weight.to_local().numel()
    loss = float(run.callback_metrics["val_loss"])
    assert abs(loss - float(on_cpu.callback_metrics["val_loss"])) < 1e-5
    return loss, shard_size


def split_with_fabric():
    """Run Fabric's sharding strategies, and compare them with the CPU."""
    from torch.distributed.fsdp import fully_shard

    import hpu_magic.lightning.fabric as of_fabric

    def cut(module: nn.Module, mesh) -> nn.Module:
        return fully_shard(module, mesh=mesh["data_parallel"])

    losses = {}
    for name, strategy in {
        "cpu": None,
        "fsdp": of_fabric.HPUFSDPStrategy(),
        "split": of_fabric.HPUModelParallelStrategy(
            cut, data_parallel_size=dist_size(), tensor_parallel_size=1
        ),
    }.items():
        chosen = {"accelerator": "cpu", "devices": 1} if strategy is None else {}
        run = fabric.Fabric(strategy=strategy or "auto", **chosen)
        run.launch()
        torch.manual_seed(1)
        with run.init_module(empty_init=False):
            model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        model = run.setup_module(model)
        optimizer = run.setup_optimizers(torch.optim.SGD(model.parameters(), lr=0.1))
        losses[name] = []
        for inputs, labels in run.setup_dataloaders(plain_loader("hpu" if strategy else "cpu")):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            run.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses[name].append(run.all_reduce(loss.detach().clone()).item())
    torch.testing.assert_close(losses["fsdp"], losses["cpu"], **CLOSE)
    torch.testing.assert_close(losses["split"], losses["cpu"], **CLOSE)
