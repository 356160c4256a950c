"""Test LightningCLI on hpu, with flags, class paths and a configuration file."""

import pytest
from steps import QUIET

pytest.importorskip("jsonargparse")
pytestmark = pytest.mark.once

BF16 = ("--trainer.precision=bf16-mixed",)
CONFIG = """
trainer:
  accelerator: hpu
  devices: 1
  strategy:
    class_path: hpu_magic.lightning.SingleHPUStrategy
  plugins:
    - class_path: hpu_magic.lightning.HPUPrecisionPlugin
      init_args:
        precision: fp8
        replace_layers: true
        recipe:
          interval: 4
          fp8_format: E5M2
    - class_path: hpu_magic.lightning.HPUCheckpointIO
  profiler:
    class_path: hpu_magic.lightning.HPUProfiler
    init_args:
      row_limit: 3
    dict_kwargs:
      profile_memory: true
  max_epochs: 1
model:
  width: 16
"""


@pytest.fixture
def cli(lightning, net, loader, tmp_path, monkeypatch):
    """A function that runs a command line and returns the `LightningCLI`."""
    from lightning.pytorch.cli import LightningCLI

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train.py"])

    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            return loader()

    def run(*arguments, **options):
        return LightningCLI(
            net,
            Data,
            args=list(arguments),
            trainer_defaults=QUIET,
            save_config_callback=None,
            **options,
        )

    return run


@pytest.mark.parametrize(
    "flags",
    [
        (
            *BF16,
            "--trainer.accelerator=hpu",
            "--trainer.devices=1",
            "--trainer.strategy=hpu_single",
        ),
        (*BF16, "--trainer.accelerator=auto", "--trainer.devices=auto"),
        (
            '--trainer.accelerator={"class_path": "hpu_magic.lightning.HPUAccelerator"}',
            '--trainer.strategy={"class_path": "hpu_magic.lightning.SingleHPUStrategy"}',
            "--trainer.plugins=hpu_magic.lightning.HPUPrecisionPlugin",
            "--trainer.plugins.precision=bf16-mixed",
        ),
    ],
)
def test_command_line_flags_select_the_plug_ins(cli, flags):
    result = cli("fit", *flags, "--trainer.max_steps=2")
    assert result.trainer.global_step == 2
    assert {device for _, device, _ in result.model.seen} == {"hpu"}
    parts = (result.trainer.accelerator, result.trainer.strategy, result.trainer.precision_plugin)
    assert [type(part).__name__ for part in parts] == [
        "HPUAccelerator",
        "SingleHPUStrategy",
        "HPUPrecisionPlugin",
    ]


def test_configuration_file_selects_all_plug_ins(cli, tmp_path):
    from habana_frameworks.torch.hpex.experimental import transformer_engine as te

    (tmp_path / "config.yaml").write_text(CONFIG)
    result = cli("fit", "--config=config.yaml")
    trainer = result.trainer
    assert trainer.global_step == 4
    assert type(result.model.head) is te.Linear
    assert result.model.head.in_features == 16
    assert trainer.precision_plugin.recipe == te.recipe.DelayedScaling(
        interval=4, fp8_format=te.recipe.Format.E5M2
    )
    assert type(trainer.strategy.checkpoint_io).__name__ == "HPUCheckpointIO"
    assert type(trainer.profiler).__name__ == "HPUProfiler"
    assert trainer.profiler._profiler_kwargs["profile_memory"] is True


def test_printed_configuration_can_be_read_again(cli, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(CONFIG)
    with pytest.raises(SystemExit):
        cli("fit", "--config=config.yaml", "--print_config")
    printed = capsys.readouterr().out
    assert "class_path: hpu_magic.lightning.HPUPrecisionPlugin" in printed
    (tmp_path / "printed.yaml").write_text(printed)
    assert cli("fit", "--config=printed.yaml").trainer.global_step == 4


def test_unknown_option_is_named(cli, capsys):
    with pytest.raises(SystemExit):
        cli("fit", "--trainer.plugins=HPUPrecisionPlugin", "--trainer.plugins.precison=fp8")
    assert "precison" in capsys.readouterr().err
