"""Functions for ranks: fits on several cards, compared with one CPU that reads all batches."""

import os
import signal
from pathlib import Path
from typing import Any

import lightning.fabric as fabric
import lightning.pytorch as lightning
import torch
import torch.distributed as dist
from steps import QUIET, Steps, same_weights
from torch import nn

import hpu_magic.lightning as plugins
from hpu_magic.lightning.parallel import all_reduced_if_over_hccl

ROWS = 32
BATCH = 8  # on all ranks together
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
LAZY = os.environ.get("PT_HPU_LAZY_MODE") == "1"


class Net(Steps, lightning.LightningModule):
    """A classifier that logs the mean over all ranks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)
        self.seen: set[tuple[str, str, int, torch.dtype]] = set()

    def forward(self, inputs):
        return self.head(self.body(inputs))

    def loss(self, batch, kind: str):
        inputs, labels = batch
        scores = self(inputs)
        self.seen.add((kind, scores.device.type, len(scores), scores.dtype))
        loss = nn.functional.cross_entropy(scores.float(), labels)
        self.log(f"{kind}_loss", loss, sync_dist=True, on_step=kind == "train", on_epoch=True)
        return loss


class Silent(Net):
    """A model that does not call ``log``, which Dynamo cannot compile."""

    def loss(self, batch, kind: str):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])


def rows():
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(ROWS, 4, generator=generator)
    return torch.utils.data.TensorDataset(inputs, inputs[:, :3].argmax(1))


def loader(accelerator: str):
    """Return batches for training; a rank gets every n-th row of the CPU's batches."""
    if accelerator == "cpu":
        return plain_loader("cpu")
    return loader_of(int(os.environ["RANK"]), dist_size())


def loader_of(rank: int, size: int):
    sampler = torch.utils.data.DistributedSampler(rows(), size, rank, shuffle=False)
    return torch.utils.data.DataLoader(rows(), batch_size=BATCH // size, sampler=sampler)


def plain_loader(accelerator: str):
    """Return batches whose rows Lightning distributes, shuffled for training."""
    size = BATCH if accelerator == "cpu" else BATCH // dist_size()
    return torch.utils.data.DataLoader(rows(), batch_size=size)


def trainer(accelerator: str, **options):
    chosen: dict[str, Any] = QUIET | {"max_epochs": 2, "num_sanity_val_steps": 0}
    if accelerator == "cpu":
        options.pop("strategy", None)
        chosen["devices"] = 1
    return lightning.Trainer(accelerator=accelerator, **(chosen | options))


def dist_size() -> int:
    return int(os.environ["WORLD_SIZE"])


def check_same(one, other, **tolerances: float):
    same_weights(one, other, **(tolerances or CLOSE))


def fitted(make=Net, **options) -> dict[str, Any]:
    """Fit on the CPU and on the cards, and compare the models."""
    models = {}
    for accelerator in ("cpu", "hpu"):
        models[accelerator] = make()
        run = trainer(accelerator, **options)
        run.fit(models[accelerator], loader(accelerator))
    check_same(models["hpu"], models["cpu"])
    return models


def fit_with_callbacks(folder: str) -> dict[str, Any]:
    """Fit with callbacks, evaluate and predict; return the results on both devices."""
    callbacks = lightning.callbacks
    shown: dict[str, Any] = {}
    models = []
    for accelerator in ("cpu", "hpu"):
        place = Path(folder, accelerator if accelerator == "hpu" else f"cpu-{os.environ['RANK']}")
        best = callbacks.ModelCheckpoint(place, monitor="val_loss", save_last=True)
        stopping = callbacks.EarlyStopping("val_loss", min_delta=0.06, patience=1)
        rates = callbacks.LearningRateMonitor(logging_interval="step")
        run = trainer(
            accelerator,
            max_epochs=12,
            accumulate_grad_batches=2,
            gradient_clip_val=0.5,
            enable_checkpointing=True,
            callbacks=[best, stopping, rates, callbacks.DeviceStatsMonitor()],
            logger=lightning.loggers.CSVLogger(place, flush_logs_every_n_steps=1),
            log_every_n_steps=1,
        )
        model = Net()
        data = plain_loader(accelerator)
        run.fit(model, loader(accelerator), data)
        validated = run.validate(model, data, verbose=False)
        tested = run.test(ckpt_path="best", dataloaders=data, verbose=False)
        predicted = run.predict(model, data)
        models.append(model)
        shown[accelerator] = {
            "steps": [run.current_epoch, run.global_step, stopping.stopped_epoch],
            "best": Path(best.best_model_path).name,
            "rates": {name: list(values) for name, values in rates.lrs.items()},
            "metrics": {name: float(each) for name, each in run.callback_metrics.items()},
            "evaluated": [validated, tested],
            "predicted": torch.cat(predicted).tolist(),
        }
        shown["strategy"] = (
            type(run.strategy).__name__,
            str(run.strategy.root_device),
            run.world_size,
            run.global_rank,
            dist.get_backend() if dist.is_initialized() else "",
        )
    check_same(models[1], models[0])
    shown["seen"] = sorted((kind, type_, size) for kind, type_, size, _ in models[1].seen)
    return shown


OPTIONS: dict[str, dict[str, Any]] = {
    "views": {"gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "small": {"bucket_cap_mb": 0.0005},
    "unused": {"find_unused_parameters": True},
    "both": {"process_group_backend": "cpu:gloo,hpu:hccl"},
}


def ddp_options():
    class Half(Net):
        """A model that uses its head only in every other step."""

        def forward(self, inputs):
            inside = self.body(inputs)
            return self.head(inside) if self.global_step % 2 else inside[:, :3] * 2

    for name, options in OPTIONS.items():
        kind = plugins.HPUDDPStrategy if name == "static" else plugins.HPUParallelStrategy
        fitted(Half if name == "unused" else Net, strategy=kind(**options))


def sync_batchnorm():
    class Normalized(Net):
        def __init__(self):
            super().__init__()
            self.body.append(nn.BatchNorm1d(self.head.in_features))

    fitted(Normalized, strategy="hpu_ddp", sync_batchnorm=True)


def unused_parameters() -> str:
    class Headless(Net):
        def forward(self, inputs):
            return self.body(inputs)[:, :3]

    try:
        trainer("hpu").fit(Headless(), loader("hpu"))
    except RuntimeError as error:
        return str(error)
    return ""


def ddp_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def fit(**options):
        model = Net()
        strategy = plugins.HPUParallelStrategy(**options)
        trainer("hpu", strategy=strategy).fit(model, loader("hpu"))
        return model

    hook = default_hooks.allreduce_hook
    plain = fit()
    check_same(fit(ddp_comm_hook=hook), plain)
    halved = fit(ddp_comm_hook=hook, ddp_comm_wrapper=default_hooks.fp16_compress_wrapper)
    check_same(halved, plain, rtol=5e-3, atol=5e-3)
    assert any(
        not torch.equal(each.cpu(), other.cpu())
        for each, other in zip(halved.parameters(), plain.parameters(), strict=True)
    )


def manual_optimization():
    class Manual(Net):
        automatic_optimization = False

        def training_step(self, batch, index: int):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch, "train"))
            self.clip_gradients(optimizer, 0.05, "value")
            optimizer.step()

    fitted(Manual)


def averaged_weights():
    averaging = lightning.callbacks.StochasticWeightAveraging
    models = []
    for accelerator in ("cpu", "hpu"):
        models.append(Net())
        run = trainer(
            accelerator,
            max_epochs=5,
            callbacks=[averaging(swa_lrs=0.05, swa_epoch_start=2, annealing_epochs=2)],
        )
        run.fit(models[-1], loader(accelerator))
    check_same(*models)


def precisions() -> dict[str, list[str]]:
    from habana_frameworks.torch.hpex.experimental import transformer_engine as te

    types = {}
    for precision in ("bf16-mixed", "bf16-true"):
        model = Net()
        trainer("hpu", precision=precision).fit(model, loader("hpu"))
        types[precision] = sorted({str(dtype) for *_, dtype in model.seen})
        reference = Net()
        trainer("cpu").fit(reference, loader("cpu"))
        check_same(model.float(), reference, rtol=0.1, atol=0.05)
    torch.manual_seed(1)
    model = Net()
    model.body = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 16))
    plugin = plugins.HPUPrecisionPlugin(precision="fp8", replace_layers=True)
    run = trainer("hpu", plugins=[plugin])
    run.fit(model, loader("hpu"))
    assert type(model.body[1]) is te.Linear
    types["fp8"] = [
        str(meta.scale.tolist())
        for name, meta in model.body[1].fp8_meta.items()
        if name != "recipe"
    ] + [str(float(run.callback_metrics["train_loss"]))]
    return types


def checkpoints(folder: str, done: str):
    """Resume on the CPU a fit that began on the cards, and vice versa."""
    whole, rank = Net(), os.environ["RANK"]
    trainer("cpu", max_epochs=4).fit(whole, loader("cpu"))
    begun = Net()
    first = trainer("hpu", max_epochs=2)
    first.fit(begun, loader("hpu"))
    path = os.path.join(folder, "hpu.ckpt")
    first.save_checkpoint(path)
    saved = torch.load(path, weights_only=False)
    assert {value.device.type for value in saved["state_dict"].values()} == {"cpu"}
    resumed = Net()
    trainer("cpu", max_epochs=4).fit(resumed, loader("cpu"), ckpt_path=path)
    check_same(resumed, whole)

    begun, resumed = Net(), Net()
    first = trainer("cpu", max_epochs=2)
    first.fit(begun, loader("cpu"))
    path = os.path.join(folder, f"cpu-{rank}.ckpt")
    first.save_checkpoint(path)
    later = trainer("hpu", max_epochs=4)
    later.fit(resumed, loader("hpu"), ckpt_path=os.path.join(folder, "cpu-0.ckpt"))
    check_same(resumed, whole)
    assert later.global_step == 4 * ROWS // BATCH
    with open(done, "a") as file:
        file.write(rank)


def compiled():
    plain, inside, outside = Silent(), Silent(), Silent()
    trainer("cpu").fit(plain, loader("cpu"))
    inside.body.compile(backend="hpu_backend")
    trainer("hpu").fit(inside, loader("hpu"))
    check_same(inside, plain)
    trainer("hpu").fit(torch.compile(outside, backend="hpu_backend"), loader("hpu"))
    check_same(outside, plain)


def fabric_loop(folder: str, name: str) -> list[float]:
    """Run a Fabric loop that accumulates, clips, gathers and saves."""
    shown = {}
    for accelerator in ("cpu", "hpu"):
        chosen: dict[str, Any] = {"devices": 1} if accelerator == "cpu" else {"strategy": name}
        run = fabric.Fabric(accelerator=accelerator, **chosen)
        run.launch()
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model, optimizer = run.setup(model, optimizer)
        data = run.setup_dataloaders(plain_loader(accelerator))
        losses = []
        for index, (inputs, labels) in enumerate(data):
            with run.no_backward_sync(model, enabled=index % 2 == 0 and accelerator == "hpu"):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                run.backward(loss)
            losses.append(run.all_reduce(loss.detach().clone()).item())
            if index % 2:
                run.clip_gradients(model, optimizer, max_norm=0.5)
                optimizer.step()
                optimizer.zero_grad()
        path = Path(folder, f"{accelerator}-{name}-{'' if accelerator == 'hpu' else run.device}")
        run.save(path / "state.ckpt", {"model": model, "optimizer": optimizer})
        run.barrier()
        gathered = run.all_gather(torch.full((2,), float(run.global_rank), device=run.device))
        shown[accelerator] = (model.module, losses, gathered.tolist())
        if accelerator == "hpu":
            saved = torch.load(path / "state.ckpt", weights_only=True)["model"]
            assert {value.device.type for value in saved.values()} == {"cpu"}
            for name, value in model.module.state_dict().items():
                assert torch.equal(saved[name], value.cpu()), name
    check_same(shown["hpu"][0], shown["cpu"][0])
    torch.testing.assert_close(shown["hpu"][1], shown["cpu"][1], **CLOSE)
    assert shown["hpu"][2] == [[float(rank)] * 2 for rank in range(dist_size())]
    return shown["hpu"][1]


def reductions() -> dict[str, Any]:
    """Return the results of a strategy's reductions and broadcasts."""
    run = trainer("hpu")
    run.fit(Net(), loader("hpu"))
    rank = run.global_rank
    other = fabric.Fabric(accelerator="hpu")
    other.launch()
    found = {}
    for name in ("mean", "avg", "sum", "max", dist.ReduceOp.AVG, dist.ReduceOp.SUM):
        whole = torch.tensor([rank, 3 * rank], device="hpu")
        halves = run.strategy.reduce(whole.float(), reduce_op=name)
        assert torch.equal(other.all_reduce(whole.float(), reduce_op=name), halves)
        assert torch.equal(all_reduced_if_over_hccl(whole.float(), reduce_op=name), halves)
        found[str(name)] = (halves.tolist(), run.strategy.reduce(whole, reduce_op=name).tolist())
    found["decisions"] = (
        run.strategy.reduce_boolean_decision(rank == 0, all=True),
        run.strategy.reduce_boolean_decision(rank == 0, all=False),
        run.strategy.broadcast({"from": rank}, src=1),
    )
    return found


def unsuitable_combinations() -> list[str]:
    refusals = []
    for options in (
        {"strategy": "hpu_fsdp", "plugins": [plugins.HPUPrecisionPlugin("bf16-mixed")]},
        {"strategy": "hpu_model_parallel", "precision": "16-mixed"},
        {"strategy": plugins.HPUParallelStrategy(process_group_backend="gloo")},
    ):
        try:
            trainer("hpu", **options)
        except Exception as refusal:  # noqa: BLE001 (the test checks its type)
            refusals.append(f"{type(refusal).__name__}: {refusal}")
    return refusals


def command_line(config: str) -> tuple[str, bool, bool, int]:
    from lightning.pytorch.cli import LightningCLI

    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            return loader("hpu")

    run = LightningCLI(
        Net, Data, args=["fit", "--config", config], save_config_callback=None
    ).trainer
    options = run.strategy._ddp_kwargs
    return (
        type(run.strategy).__name__,
        options.get("static_graph", False),
        isinstance(run.precision_plugin, plugins.HPUPrecisionPlugin),
        run.global_step,
    )


def node(rank: int, card: str) -> tuple[int, int, int, str]:
    """Train as one of two machines with one card each, which a user starts separately."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        del os.environ[name]
    os.environ["NODE_RANK"], os.environ["HLS_MODULE_ID"] = str(rank), card
    run = trainer("hpu", devices=1, num_nodes=2)
    model = Net()
    run.fit(model, loader_of(rank, 2))
    reference = Net()
    trainer("cpu").fit(reference, loader("cpu"))
    check_same(model, reference)
    return run.world_size, run.global_rank, run.node_rank, os.environ["HLS_MODULE_ID"]


def killed_in_a_step(rank: int) -> str:
    """Kill a rank in a step; return the error of the other rank's fit."""

    class Killed(Net):
        def training_step(self, batch, index: int):
            if self.global_rank == rank and self.trainer.global_step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().training_step(batch, index)

    run = trainer("hpu")
    try:
        run.fit(Killed(), loader("hpu"))
    except dist.DistBackendError as error:
        return f"{run.state.status.value} {error}"
    return "nothing was raised"
