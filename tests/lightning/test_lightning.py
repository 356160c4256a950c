"""Test Lightning's `Trainer` on hpu, in both distributions of Lightning."""

import copy
import importlib
import pickle
import sys
import types
from pathlib import Path

import pytest
from steps import NAMESPACES, QUIET


def test_bf16_mixed_computes_in_bfloat16_and_keeps_fp32_weights(pytorch, make_model, torch):
    model = make_model()
    trainer = pytorch.Trainer(accelerator="hpu", precision="bf16-mixed", max_epochs=1, **QUIET)
    trainer.fit(model)
    assert {dtype for _, dtype in model.seen} == {torch.bfloat16}
    assert model.layers[0].weight.dtype == torch.float32


def test_fit_equals_the_cpu(pytorch, make_model, torch):
    weights = []
    for accelerator in ("cpu", "hpu"):
        model = make_model()
        trainer = pytorch.Trainer(accelerator=accelerator, devices=1, max_epochs=2, **QUIET)
        trainer.fit(model)
        weights.append([each.detach().cpu() for each in model.parameters()])
    torch.testing.assert_close(*weights)
    assert {device for device, _ in model.seen} == {"hpu:0"}
    assert float(trainer.callback_metrics["train_loss"]) < model.losses[0]


@pytest.mark.once
def test_lazy_step_has_one_graph_for_backward_and_one_for_the_optimizer(forked_script):
    out = forked_script(
        """
        import hpu_magic.lightning
        import lightning.pytorch as pytorch
        from lightning.pytorch.demos.boring_classes import BoringModel
        from habana_frameworks.torch.hpu.metrics import metric_localcontext

        def counts(steps):
            with metric_localcontext("recipe_cache") as metric:
                pytorch.Trainer(
                    accelerator="hpu", devices=1, max_steps=steps, logger=False,
                    enable_checkpointing=False, enable_model_summary=False,
                    enable_progress_bar=False, limit_val_batches=0,
                ).fit(BoringModel())
            stats = dict(metric.stats())
            return stats["TotalHit"] + stats["TotalMiss"], stats["TotalMiss"]

        (few, _), (many, compiled) = counts(3), counts(7)
        print(many - few, compiled)
        """,
        simulated=True,
        PT_HPU_LAZY_MODE="1",
        PT_HPU_ENABLE_CACHE_METRICS="1",
    )
    assert out.splitlines()[-1] == "8 0"  # four more steps, and no new graph


def test_memory_is_freed_after_a_fit(pytorch, make_model, torch):
    torch.zeros(1, device="hpu")
    before = torch.hpu.memory_allocated()
    model = make_model()
    pytorch.Trainer(accelerator="hpu", max_epochs=1, **QUIET).fit(model)
    assert torch.hpu.memory_allocated() == before
    assert model.layers[0].weight.device.type == "cpu"


def test_trainer_uses_the_documented_classes(pytorch):
    trainer = pytorch.Trainer(accelerator="hpu", devices=1, precision="bf16-mixed", **QUIET)
    plugins = (trainer.accelerator, trainer.strategy, trainer.precision_plugin)
    names = [type(plugin).__name__ for plugin in plugins]
    assert names == ["HPUAccelerator", "SingleHPUStrategy", "HPUPrecisionPlugin"]
    assert type(trainer.strategy.checkpoint_io).__name__ == "HPUCheckpointIO"


def test_accelerator_auto_selects_the_card(pytorch):
    assert pytorch.Trainer(**QUIET).strategy.root_device.type == "hpu"
    assert pytorch.Trainer(accelerator="cpu", **QUIET).strategy.root_device.type == "cpu"


def test_device_stats_monitor_logs_the_documented_metrics(pytorch, make_model, tmp_path):
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


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ("3.0.0", r"3\.0\.0 .*Lightning 2\.5 or 2\.6"),
        ("2.6.99", "no method _check_config_and_set_final"),
    ],
)
def test_unknown_release_and_changed_connector_are_refused(torch, release, message):
    from hpu_magic.lightning.choices import TRAINER
    from hpu_magic.lightning.connector import UnsupportedLightningError, patch

    module = types.SimpleNamespace(__name__="lightning.pytorch", __version__=release)
    connector = type("_AcceleratorConnector", (), {})
    with pytest.raises(UnsupportedLightningError, match=message):
        patch(module, connector, types.SimpleNamespace(flags=TRAINER))


def test_plug_ins_are_pickled_for_their_distribution(torch, monkeypatch):
    for name in NAMESPACES:
        pytest.importorskip(name)
    import hpu_magic.lightning.fabric
    from hpu_magic.lightning.namespaces import plugins

    namespaces = [plugins(name) for name in NAMESPACES]
    fabrics = [plugins(name) for name in ("lightning.fabric", "lightning_fabric")]
    classes = []
    for module, group in (
        (hpu_magic.lightning, namespaces),
        (hpu_magic.lightning.fabric, fabrics),
    ):
        public = {name for name in module.__all__ if isinstance(getattr(module, name), type)}
        for each in group:
            found = {name: value for name, value in vars(each).items() if isinstance(value, type)}
            assert public
            assert public <= found.keys()
            classes += found.values()
    assert len({*classes}) == len(classes)
    for kind in classes:
        assert pickle.loads(pickle.dumps(kind)) is copy.deepcopy(kind) is kind
    strategy = namespaces[1].HPUParallelStrategy(find_unused_parameters=True)
    assert type(pickle.loads(pickle.dumps(strategy))) is namespaces[1].HPUParallelStrategy
    derived = type("Derived", (namespaces[1].HPUCheckpointIO,), {"__module__": __name__})
    monkeypatch.setattr(sys.modules[__name__], "Derived", derived, raising=False)
    assert type(pickle.loads(pickle.dumps(derived()))) is derived


@pytest.mark.once
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_one_import_in_a_script_is_enough(forked_script, namespace):
    forked_script(
        f"""
import hpu_magic.lightning
import {namespace} as pl
trainer = pl.Trainer(accelerator="hpu", devices=1, logger=False)
assert str(trainer.strategy.root_device) == "hpu:0"
""",
        hides_torch=True,
    )


@pytest.mark.once
def test_hook_imports_neither_lightning_nor_torch(script):
    script(
        """
import sys
from hpu_magic.lightning import hook
hook.install()
assert not {"torch", "lightning", "pytorch_lightning"} & set(sys.modules)
"""
    )


@pytest.mark.once
def test_lightning_imported_before_the_hook_is_supported(forked_script):
    forked_script(
        """
import lightning.pytorch as pl
import hpu_magic.lightning
trainer = pl.Trainer(accelerator="hpu", devices=1, logger=False)
assert type(trainer.strategy).__name__ == "SingleHPUStrategy"
""",
        hides_torch=True,
    )
