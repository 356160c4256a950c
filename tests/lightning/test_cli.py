"""LightningCLI on hpu: by flags, by class paths and from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jsonargparse")

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
def cli(lightning: Any, net: Any, loader: Any, tmp_path: Path, monkeypatch: Any) -> Callable:
    """Run a command line; without a subcommand it only makes its objects."""
    from lightning.pytorch.cli import LightningCLI

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train.py"])

    class Data(lightning.LightningDataModule):  # type: ignore[name-defined,misc]
        def train_dataloader(self) -> Any:
            return loader()

    quiet = {"enable_progress_bar": False, "logger": False, "enable_checkpointing": False}

    def run(*arguments: str, **options: Any) -> Any:
        return LightningCLI(
            net,
            Data,
            args=list(arguments),
            trainer_defaults=quiet | {"enable_model_summary": False},
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
def test_flags_choose_the_card(cli: Any, flags: tuple[str, ...]) -> None:
    made = cli("fit", *flags, "--trainer.max_steps=2")
    assert made.trainer.global_step == 2
    assert {device for _, device, _ in made.model.seen} == {"hpu"}
    parts = (made.trainer.accelerator, made.trainer.strategy, made.trainer.precision_plugin)
    assert [type(part).__name__ for part in parts] == [
        "HPUAccelerator",
        "SingleHPUStrategy",
        "HPUPrecisionPlugin",
    ]


def test_a_file_chooses_every_plug_in(cli: Any, tmp_path: Path) -> None:
    from habana_frameworks.torch.hpex.experimental import transformer_engine as te

    (tmp_path / "config.yaml").write_text(CONFIG)
    made = cli("fit", "--config=config.yaml")
    trainer = made.trainer
    assert trainer.global_step == 4
    assert type(made.model.head) is te.Linear
    assert made.model.head.in_features == 16
    assert trainer.precision_plugin.recipe == te.recipe.DelayedScaling(
        interval=4, fp8_format=te.recipe.Format.E5M2
    )
    assert type(trainer.strategy.checkpoint_io).__name__ == "HPUCheckpointIO"
    assert type(trainer.profiler).__name__ == "HPUProfiler"
    assert trainer.profiler._profiler_kwargs["profile_memory"] is True


def test_what_is_chosen_can_be_printed_and_read_again(
    cli: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    with pytest.raises(SystemExit):
        cli("fit", "--config=config.yaml", "--print_config")
    printed = capsys.readouterr().out
    assert "class_path: hpu_magic.lightning.HPUPrecisionPlugin" in printed
    (tmp_path / "printed.yaml").write_text(printed)
    assert cli("fit", "--config=printed.yaml").trainer.global_step == 4


def test_an_unknown_option_is_named(cli: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli("fit", "--trainer.plugins=HPUPrecisionPlugin", "--trainer.plugins.precison=fp8")
    assert "precison" in capsys.readouterr().err
