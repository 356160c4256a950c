"""Lightning's Trainer on hpu: what it accepts, what it refuses, and what comes out."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

NAMESPACES = ("lightning.pytorch", "pytorch_lightning")
QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "enable_progress_bar": False,
}


@pytest.fixture(params=NAMESPACES)
def pytorch(request: pytest.FixtureRequest, torch: Any) -> Any:
    """Each of the two distributions of Lightning."""
    return pytest.importorskip(request.param)


@pytest.fixture
def make_model(pytorch: Any, torch: Any) -> Any:
    """Make a small regression model that notes devices and dtypes as it trains."""

    class Model(pytorch.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)
            self.seen: list[tuple[str, Any]] = []

        def training_step(self, batch: Any, index: int) -> Any:
            (inputs,) = batch
            outputs = self.layer(inputs)
            self.seen.append((str(outputs.device), outputs.dtype))
            loss = (outputs.float() - inputs.sum(1, keepdim=True)).square().mean()
            self.log("train_loss", loss)
            return loss

        def train_dataloader(self) -> Any:
            torch.manual_seed(0)
            data = torch.utils.data.TensorDataset(torch.randn(64, 8))
            return torch.utils.data.DataLoader(data, batch_size=16)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    return Model


def test_fit_runs_on_the_device(pytorch: Any, make_model: Any) -> None:
    model = make_model()
    trainer = pytorch.Trainer(accelerator="hpu", devices=1, max_epochs=8, **QUIET)
    trainer.fit(model)
    assert {device for device, _ in model.seen} == {"hpu:0"}
    assert float(trainer.callback_metrics["train_loss"]) < 5


def test_bf16_mixed_computes_in_bfloat16_and_keeps_fp32_weights(
    pytorch: Any, make_model: Any, torch: Any
) -> None:
    model = make_model()
    trainer = pytorch.Trainer(accelerator="hpu", precision="bf16-mixed", max_epochs=1, **QUIET)
    trainer.fit(model)
    assert {dtype for _, dtype in model.seen} == {torch.bfloat16}
    assert model.layer.weight.dtype == torch.float32


def test_hpu_and_cpu_learn_the_same(pytorch: Any, make_model: Any, torch: Any) -> None:
    weights = []
    for accelerator in ("cpu", "hpu"):
        torch.manual_seed(1)
        model = make_model()
        pytorch.Trainer(accelerator=accelerator, devices=1, max_epochs=2, **QUIET).fit(model)
        weights.append(model.layer.weight.detach().cpu())
    torch.testing.assert_close(*weights)


def test_a_lazy_step_is_one_graph_for_backward_and_one_for_the_optimizer(
    forked_script: Any,
) -> None:
    out = forked_script(
        """
        import hpu_magic.lightning
        import lightning.pytorch as pytorch
        import torch
        from habana_frameworks.torch.hpu.metrics import metric_localcontext

        class Model(pytorch.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(8, 1)

            def training_step(self, batch, index):
                return self.layer(batch).square().mean()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.05)

        def counts(steps):
            data = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
            with metric_localcontext("recipe_cache") as metric:
                pytorch.Trainer(
                    accelerator="hpu", devices=1, max_steps=steps, logger=False,
                    enable_checkpointing=False, enable_model_summary=False,
                    enable_progress_bar=False,
                ).fit(Model(), data)
            seen = dict(metric.stats())
            return seen["TotalHit"] + seen["TotalMiss"], seen["TotalMiss"]

        (few, _), (many, compiled) = counts(3), counts(7)
        print(many - few, compiled)
        """,
        simulated=True,
        PT_HPU_LAZY_MODE="1",
        PT_HPU_ENABLE_CACHE_METRICS="1",
    )
    assert out.splitlines()[-1] == "8 0"  # four steps more, and no graph that is new


def test_memory_is_given_back_after_a_fit(pytorch: Any, make_model: Any, torch: Any) -> None:
    torch.zeros(1, device="hpu")
    before = torch.hpu.memory_allocated()
    model = make_model()
    pytorch.Trainer(accelerator="hpu", max_epochs=1, **QUIET).fit(model)
    assert torch.hpu.memory_allocated() == before
    assert model.layer.weight.device.type == "cpu"


def test_classes_are_those_of_the_documentation(pytorch: Any) -> None:
    trainer = pytorch.Trainer(accelerator="hpu", devices=1, precision="bf16-mixed", **QUIET)
    plugins = (trainer.accelerator, trainer.strategy, trainer.precision_plugin)
    names = [type(plugin).__name__ for plugin in plugins]
    assert names == ["HPUAccelerator", "SingleHPUStrategy", "HPUPrecisionPlugin"]
    assert type(trainer.strategy.checkpoint_io).__name__ == "HPUCheckpointIO"


def test_plugins_can_be_passed_as_instances(make_model: Any) -> None:
    from hpu_magic.lightning import HPUAccelerator, HPUPrecisionPlugin, SingleHPUStrategy
    from hpu_magic.lightning.namespaces import default_namespace

    pytorch = importlib.import_module(default_namespace())
    trainer = pytorch.Trainer(
        accelerator=HPUAccelerator(),
        devices=1,
        strategy=SingleHPUStrategy(),
        plugins=[HPUPrecisionPlugin("bf16-mixed")],
        **QUIET,
    )
    assert trainer.strategy.root_device.type == "hpu"
    assert trainer.precision_plugin.precision == "bf16-mixed"


def test_auto_chooses_the_card_and_cpu_stays_cpu(pytorch: Any) -> None:
    assert pytorch.Trainer(**QUIET).strategy.root_device.type == "hpu"
    assert pytorch.Trainer(accelerator="cpu", **QUIET).strategy.root_device.type == "cpu"


def test_device_stats_monitor_logs_the_documented_metrics(
    pytorch: Any, make_model: Any, tmp_path: Path
) -> None:
    from hpu_magic.lightning.accelerator import MEMORY_METRICS

    loggers = importlib.import_module(f"{pytorch.__name__}.loggers")
    callbacks = importlib.import_module(f"{pytorch.__name__}.callbacks")
    logger = loggers.CSVLogger(tmp_path)
    trainer = pytorch.Trainer(
        accelerator="hpu",
        max_epochs=1,
        log_every_n_steps=1,
        callbacks=[callbacks.DeviceStatsMonitor()],
        **(QUIET | {"logger": logger}),
    )
    trainer.fit(make_model())
    header = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0].split(",")
    for metric in MEMORY_METRICS:
        assert f"DeviceStatsMonitor.on_train_batch_end/{metric}" in header


def test_checkpoint_loads_without_a_card(
    pytorch: Any, make_model: Any, torch: Any, tmp_path: Path
) -> None:
    trainer = pytorch.Trainer(accelerator="hpu", max_epochs=1, **QUIET)
    trainer.fit(make_model())
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    checkpoint = torch.load(tmp_path / "model.ckpt", weights_only=False)
    assert {value.device.type for value in checkpoint["state_dict"].values()} == {"cpu"}
    resumed = pytorch.Trainer(accelerator="hpu", max_epochs=2, **QUIET)
    resumed.fit(make_model(), ckpt_path=tmp_path / "model.ckpt")
    assert resumed.current_epoch == 2


def test_unknown_release_of_lightning_is_named(torch: Any) -> None:
    from hpu_magic.lightning.choices import TRAINER
    from hpu_magic.lightning.connector import UnsupportedLightningError, patch

    future = types.SimpleNamespace(__name__="lightning.pytorch", __version__="3.0.0")
    connector = type("_AcceleratorConnector", (), {})
    with pytest.raises(UnsupportedLightningError, match=r"3\.0\.0 .*Lightning 2\.5 or 2\.6"):
        patch(future, connector, types.SimpleNamespace(flags=TRAINER))  # type: ignore[arg-type]


def test_changed_connector_is_named(torch: Any) -> None:
    from hpu_magic.lightning.choices import TRAINER
    from hpu_magic.lightning.connector import UnsupportedLightningError, patch

    changed = types.SimpleNamespace(__name__="lightning.pytorch", __version__="2.6.99")
    connector = type("_AcceleratorConnector", (), {})
    with pytest.raises(UnsupportedLightningError, match="no method _check_config_and_set_final"):
        patch(changed, connector, types.SimpleNamespace(flags=TRAINER))  # type: ignore[arg-type]


def test_plug_ins_are_pickled_with_the_lightning_that_they_are_for(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMESPACES:
        pytest.importorskip(name)
    from hpu_magic.lightning.namespaces import plugins

    made = [plugins(name) for name in NAMESPACES]
    made += [plugins(name) for name in ("lightning.fabric", "lightning_fabric")]
    classes = [one for each in made for one in vars(each).values() if isinstance(one, type)]
    assert len(classes) == 40
    for one in classes:
        assert pickle.loads(pickle.dumps(one)) is one
        assert copy.deepcopy(one) is one
    strategy = made[1].HPUParallelStrategy(find_unused_parameters=True)
    assert type(pickle.loads(pickle.dumps(strategy))) is made[1].HPUParallelStrategy
    derived = type("Derived", (made[1].HPUCheckpointIO,), {"__module__": __name__})
    monkeypatch.setattr(sys.modules[__name__], "Derived", derived, raising=False)
    assert type(pickle.loads(pickle.dumps(derived()))) is derived


def run_program(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=180)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_one_import_in_a_script_is_enough(namespace: str) -> None:
    run_program(
        f"""
import hpu_magic.lightning
import {namespace} as pl
trainer = pl.Trainer(accelerator="hpu", devices=1, logger=False)
assert str(trainer.strategy.root_device) == "hpu:0"
"""
    )


def test_hook_imports_neither_lightning_nor_torch() -> None:
    run_program(
        """
import sys
from hpu_magic.lightning import hook
hook.install()
assert not {"torch", "lightning", "pytorch_lightning"} & set(sys.modules)
"""
    )


def test_lightning_imported_before_the_hook_works_at_once() -> None:
    run_program(
        """
import lightning.pytorch as pl
import hpu_magic.lightning
trainer = pl.Trainer(accelerator="hpu", devices=1, logger=False)
assert type(trainer.strategy).__name__ == "SingleHPUStrategy"
"""
    )
