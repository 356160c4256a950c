"""Functions for ranks: fits with DeepSpeed on several cards, compared with replicas."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.fabric as fabric
import lightning.pytorch as lightning
import torch
import torch.distributed as dist
from fits_of_ranks import Net, check_same, loader, plain_loader, trainer
from torch import nn

import hpu_magic
import hpu_magic.lightning as plugins

EPOCHS = 5  # of 4 steps


class Recorded(Net):
    """A model that stores the loss of each step."""

    def __init__(self):
        super().__init__()
        self.losses: list[float] = []

    def training_step(self, batch, index: int):
        loss = super().training_step(batch, index)
        self.losses.append(loss.item())
        return loss


def losses_of(strategy: Any, precision: str, **options) -> list[float]:
    """Return the losses of 20 steps."""
    model = Recorded()
    run = trainer("hpu", strategy=strategy, precision=precision, max_epochs=EPOCHS, **options)
    run.fit(model, loader("hpu"))
    assert run.global_step == len(model.losses) == 20
    return model.losses


def stages(precision: str, tolerance: float, numbers: list[int]) -> list[list[float]]:
    """Train with replicas and ZeRO stages; return the losses of the replicas and the last stage."""
    clip = {"gradient_clip_val": 0.5}
    expected = losses_of("hpu_parallel", precision, **clip)
    found = []
    for stage in numbers:
        strategy = plugins.HPUDeepSpeedStrategy(stage=stage, process_group_backend="hccl")
        found = losses_of(strategy, precision, **clip)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=0, msg=f"stage {stage}")
    return [expected, found]


def names(folder: str) -> list[tuple[str, Any]]:
    """Return the class and ZeRO stage of strategies that are selected by name and by file."""
    path = Path(folder, f"{os.environ['RANK']}.json")
    path.write_text('{"zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": true}')
    found = []
    for strategy in (
        "hpu_deepspeed",
        "deepspeed_stage_3",
        plugins.HPUDeepSpeedStrategy(config=str(path)),
        plugins.HPUDeepSpeedStrategy(stage=0, parallel_hpus=[torch.device("hpu")] * 2),
    ):
        run = trainer("hpu", strategy=strategy)
        stage = run.strategy.config["zero_optimization"]["stage"]
        found.append((type(run.strategy).__name__, stage))
        assert type(run.precision_plugin) is plugins.HPUDeepSpeedPrecisionPlugin
        assert run.strategy.process_group_backend == "hccl"
    return found


def checkpoints(stage: int, folder: str) -> tuple[list[str], str]:
    """Resume a fit from its folder of shards, consolidate the shards, and evaluate them."""
    from lightning.pytorch.utilities.deepspeed import convert_zero_checkpoint_to_fp32_state_dict

    def strategy(**options):
        return plugins.HPUDeepSpeedStrategy(stage=stage, **options)

    whole = Net()
    reference = trainer("cpu", max_epochs=4)
    reference.fit(whole, loader("cpu"), plain_loader("cpu"))
    path, end = os.path.join(folder, "begun.ckpt"), os.path.join(folder, "ended.ckpt")
    first = trainer("hpu", strategy=strategy(), max_epochs=2)
    first.fit(Net(), loader("hpu"))
    first.save_checkpoint(path)
    second = trainer("hpu", strategy=strategy(), max_epochs=4)
    resumed = Net()
    second.fit(resumed, loader("hpu"), ckpt_path=path)
    assert second.global_step == reference.global_step
    second.save_checkpoint(end)
    single = os.path.join(folder, f"{os.environ['RANK']}.pt")
    saved = convert_zero_checkpoint_to_fp32_state_dict(end, single)
    assert saved["global_step"] == reference.global_step
    check_same(Net.load_from_checkpoint(single, weights_only=False), whole)
    files = sorted(os.listdir(Path(end, "checkpoint")))
    error = error_on_full_disk(second.save_checkpoint, folder)
    expected = float(reference.callback_metrics["val_loss"])
    third = trainer("hpu", strategy=strategy())
    for run, model, saved in ((third, Net(), end), (second, resumed, None)):
        (measured,) = run.validate(model, plain_loader("hpu"), ckpt_path=saved, verbose=False)
        assert abs(measured["val_loss"] - expected) < 1e-5
    return files, error


def error_on_full_disk(save: Callable[[str], None], folder: str) -> str:
    """Return the error of saving a checkpoint when files are limited to 1000 bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        save(os.path.join(folder, "full"))
    except hpu_magic.HPUError as error:
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return ""


def fp8_layers() -> list[str]:
    """Train with layers that compute in FP8, with replicas and with DeepSpeed."""
    from habana_frameworks.torch.hpex.experimental import transformer_engine as te

    losses, options = [], {"precision": "fp8", "replace_layers": True}
    for strategy, plugin in {
        "hpu_parallel": plugins.HPUPrecisionPlugin(**options),
        "hpu_deepspeed": plugins.HPUDeepSpeedPrecisionPlugin(**options),
    }.items():
        model = Recorded()
        torch.manual_seed(1)
        model.body = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 16))
        run = trainer("hpu", strategy=strategy, plugins=[plugin], max_epochs=EPOCHS)
        run.fit(model, loader("hpu"))
        losses.append(model.losses)
    torch.testing.assert_close(*losses, rtol=0.05, atol=0.02)  # the losses range from 0.04 to 2
    layer = model.body[1]
    assert type(layer) is te.Linear
    assert any(
        float(meta.scale.max()) > 1 for key, meta in layer.fp8_meta.items() if key != "recipe"
    )
    return [str(layer.weight.dtype), str(run.strategy.config["bf16"])]


def refusal_of_another_precision() -> str:
    precision = plugins.HPUPrecisionPlugin("bf16-mixed")
    try:
        trainer("hpu", strategy="hpu_deepspeed", plugins=[precision])
    except Exception as refusal:  # noqa: BLE001 (the test checks its type)
        return f"{type(refusal).__name__}: {refusal}"
    return "nothing was raised"


def fabric_loop(stage: int, folder: str) -> str:
    """Train with Fabric, save and load; compare with replicas; return the error of a full disk."""
    import hpu_magic.lightning.fabric as of_fabric

    losses: dict[str, list[float]] = {}
    zero = of_fabric.HPUDeepSpeedStrategy(stage=stage)
    for name, strategy in {"replicas": "hpu_parallel", "zero": zero}.items():
        run = fabric.Fabric(accelerator="hpu", strategy=strategy)
        run.launch()
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        model, optimizer = run.setup(model, optimizer)
        data = run.setup_dataloaders(plain_loader("hpu"))
        losses[name] = []
        for _ in range(EPOCHS):
            for inputs, labels in data:
                loss = nn.functional.cross_entropy(model(inputs), labels)
                run.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                losses[name].append(loss.item())
    torch.testing.assert_close(losses["zero"], losses["replicas"], rtol=1e-5, atol=0)
    (inputs, _) = next(iter(data))
    before = model(inputs).detach().clone()
    run.save(folder, {"model": model, "optimizer": optimizer, "step": 20})
    for _ in range(2):
        run.backward(model(inputs).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    assert not torch.equal(model(inputs).cpu(), before.cpu())
    state = {"model": model, "optimizer": optimizer, "step": 0}
    run.load(folder, state)
    assert state["step"] == 20
    torch.testing.assert_close(model(inputs).cpu(), before.cpu())
    return error_on_full_disk(lambda path: run.save(path, state), folder)


def command_line(config: str) -> tuple[str, int, str, int]:
    from lightning.pytorch.cli import LightningCLI

    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            return loader("hpu")

    run = LightningCLI(
        Net, Data, args=["fit", "--config", config], save_config_callback=None
    ).trainer
    stage = run.strategy.config["zero_optimization"]["stage"]
    return type(run.strategy).__name__, stage, run.precision_plugin.precision, run.global_step


def killed(rank: int, hook: str) -> str:
    """Kill a rank in a hook after three steps; return the error of the other rank's fit.

    The other rank also calls the hook. After `configure_optimizers`, that rank initializes
    DeepSpeed.
    """

    class Killed(Net):
        def training_step(self, batch, index: int):
            if self.trainer.global_step == 3:
                self._kill("training_step")
            return super().training_step(batch, index)

        def configure_optimizers(self):
            self._kill("configure_optimizers")
            return super().configure_optimizers()

        def _kill(self, name: str):
            if self.global_rank == rank and hook == name:
                os.kill(os.getpid(), signal.SIGKILL)

    run = trainer("hpu", strategy="hpu_deepspeed")
    try:
        run.fit(Killed(), loader("hpu"))
    except dist.DistBackendError as error:
        return f"{run.state.status.value} {error}"
    return "nothing was raised"
