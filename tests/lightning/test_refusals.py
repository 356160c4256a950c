"""Test one-sentence errors for arguments that hpu does not support."""

import os
from typing import Any

import pytest
from steps import QUIET

pytestmark = pytest.mark.once

TO_WORKERS = "an interactive session is a single process: begin the cell with %%hpu_workers --cards"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"devices": 2}, f"devices=2 needs 2 processes, one per card, but {TO_WORKERS} 2, or"),
        ({"devices": "2"}, f"devices=2 needs 2 processes, .* {TO_WORKERS} 2"),
        ({"devices": [1, 0]}, f"devices=2 needs 2 processes, .* {TO_WORKERS} 2"),
        ({"devices": -1}, f"devices=8 needs 8 processes, .* {TO_WORKERS} 8"),
        ({"devices": 3, "strategy": "hpu_ddp"}, f"devices=3 .* {TO_WORKERS} 3"),
        ({"devices": 2, "strategy": "ddp_spawn"}, f"devices=2 .* {TO_WORKERS} 2"),
        ({"devices": 9}, r"devices=9 was requested, but this machine has 8 cards\."),
        ({"devices": 0}, "devices=0 is not a number of cards: write devices=1"),
        ({"devices": "0"}, "devices='0' is not a number of cards: write devices=1"),
        ({"devices": -2}, "devices=-2 is not a number of cards: write devices=1"),
        ({"devices": []}, r"devices=\[\] does not contain any cards: write devices=1"),
        ({"devices": [0, 0]}, r"devices=\[0, 0\] contains a card twice: write devices=1"),
        (
            {"devices": [2, 3]},
            r"devices=\[2, 3\] .* write devices=2 and select .* HABANA_VISIBLE_M",
        ),
        ({"devices": [3]}, r"devices=\[3\] is not supported: .* HABANA_VISIBLE_MODULES"),
        ({"devices": "3,"}, "devices='3,' is not supported: .* HABANA_VISIBLE_MODULES"),
        ({"devices": "two"}, "devices='two' is neither a number nor a list of numbers"),
        ({"devices": 1.5}, r"devices=1\.5 is neither a number nor a list of numbers"),
        ({"devices": True}, "devices=True is neither a number nor a list of numbers"),
        ({"num_nodes": 2}, f"devices=1 on 2 machines needs 2 processes, .* {TO_WORKERS} 2"),
        (
            {"num_nodes": 2, "strategy": "hpu_single"},
            r"strategy='hpu_single' trains on only one card, but num_nodes=2: write strategy='hpu",
        ),
        (
            {"devices": 2, "strategy": "hpu_single"},
            r"strategy='hpu_single' trains on only one card, but devices=2: .* or devices=1\.$",
        ),
        ({"strategy": "ddp_fork", "devices": 2}, "strategy='ddp_fork' is .*='hpu_parallel'"),
        ({"strategy": "single_device"}, "strategy='single_device' .* strategy='hpu_single'"),
        ({"strategy": "hpu_deepspeed", "devices": 2}, f"devices=2 .* {TO_WORKERS} 2"),
        ({"precision": "64-true"}, "precision='64-true' is not supported on hpu: write"),
        ({"precision": "fp8"}, r"write plugins=\[HPUPrecisionPlugin\(precision='fp8', replace_l"),
        ({"precision": "bf17"}, "Precision 'bf17' is invalid"),
        (
            {"accelerator": "cpu", "strategy": "hpu_single"},
            "needs accelerator='hpu', not 'cpu'",
        ),
        (
            {"accelerator": "cpu", "strategy": "hpu_parallel"},
            "strategy='hpu_parallel' needs accelerator='hpu', not 'cpu'",
        ),
    ],
)
def test_unsupported_arguments_of_the_trainer_are_refused(pytorch, arguments, sentence):
    with pytest.raises(
        (ValueError, pytorch.utilities.exceptions.MisconfigurationException)
    ) as refused:
        pytorch.Trainer(**{"accelerator": "hpu", **arguments}, **QUIET)
    assert refused.match(sentence)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("devices", [1, "1", "auto", [0], "0,", (0,)])
def test_one_card_can_be_requested_in_every_form(pytorch, devices):
    trainer = pytorch.Trainer(accelerator="hpu", devices=devices, **QUIET)
    assert (trainer.num_devices, str(trainer.strategy.root_device)) == (1, "hpu:0")


def test_strategies_for_other_devices_and_fabric_are_refused(pytorch):
    from hpu_magic.lightning.fabric import SingleHPUStrategy

    refusal = pytorch.utilities.exceptions.MisconfigurationException
    sentence = r"strategy=DDPStrategy is not supported on hpu: .*=HPUParallelStrategy\(\.\.\.\)"
    with pytest.raises(refusal, match=sentence):
        pytorch.Trainer(accelerator="hpu", strategy=pytorch.strategies.DDPStrategy(), **QUIET)
    with pytest.raises(
        refusal, match=r"is for \S*fabric, but it was passed to the Trainer of \S+: use"
    ):
        pytorch.Trainer(accelerator="hpu", strategy=SingleHPUStrategy(), **QUIET)


@pytest.mark.parametrize("name", ["hpu_single", "hpu_parallel", "hpu_ddp"])
def test_strategy_selects_its_accelerator(pytorch, name):
    trainer = pytorch.Trainer(strategy=name, **QUIET)
    assert (trainer.accelerator.name(), trainer.num_devices) == ("hpu", 1)
    assert trainer.strategy.strategy_name == name


def test_notebook_uses_one_card_and_reports_it(pytorch, caplog):
    with caplog.at_level("INFO"):
        pytorch.Trainer(accelerator="hpu", **QUIET)
    assert (
        "Trainer uses only one of 8 cards, because an interactive session is a single process: "
        "begin the cell with %%hpu_workers --cards 8 to train on all of them."
    ) in caplog.text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"parallel_devices": ["cpu", "hpu"]}, "parallel_devices contains 'cpu', but each process"),
        ({"parallel_devices": ["hpu:0", "hpu:1"]}, "parallel_devices contains 'hpu:1', but each"),
        ({"process_group_backend": "nccl"}, "process_group_backend='nccl' does not support"),
        ({"process_group_backend": "cpu:gloo"}, "process_group_backend='cpu:gloo' does not"),
    ],
)
def test_invalid_options_of_the_parallel_strategy_are_refused(pytorch, options, sentence):
    from hpu_magic.lightning.namespaces import plugins

    strategy = plugins(pytorch.__name__).HPUParallelStrategy
    with pytest.raises(ValueError, match=sentence):
        pytorch.Trainer(strategy=strategy(**options), **QUIET)


def test_first_generation_refuses_float16_and_fp8(forked_script):
    out = forked_script(
        """
        import lightning as L
        from hpu_magic.lightning import HPUAccelerator, HPUPrecisionPlugin
        from hpu_magic.lightning.fabric import HPUPrecision

        for make in (
            lambda: L.Trainer(accelerator="hpu", precision="16-mixed", logger=False),
            lambda: HPUPrecision("16-mixed"),
            lambda: HPUPrecisionPlugin("fp8", replace_layers=True),
        ):
            try:
                make()
            except ValueError as refusal:
                print(refusal)
        print(HPUAccelerator.is_fp8_available()[0])
        print(L.Trainer(accelerator="hpu", precision="bf16-mixed").precision)
        """,
        simulated=True,
        HPU_MAGIC_CARD="gaudi",
    )
    lacks = "needs a Gaudi2 or later card, but this machine has GAUDI: write precision="
    assert [line for line in out.splitlines() if line][-5:] == [
        f"precision='16-mixed' {lacks}'bf16-mixed'.",
        f"precision='16-mixed' {lacks}'bf16-mixed'.",
        f"precision='fp8' {lacks}'bf16-mixed'.",
        "False",
        "bf16-mixed",
    ]


def test_convert_modules_accepts_the_documented_options(torch, monkeypatch):
    from habana_frameworks.torch.hpex.experimental import transformer_engine as te

    from hpu_magic.lightning import HPUPrecisionPlugin

    plugin = HPUPrecisionPlugin("fp8")
    model = torch.nn.Sequential(torch.nn.Linear(16, 16))
    assert type(plugin.convert_modules(model)[0]) is torch.nn.Linear
    plugin.convert_modules(model, False, True, te.recipe.DelayedScaling(interval=8))
    assert type(model[0]) is te.Linear
    assert (plugin.recipe.interval, plugin.replace_layers) == (8, True)
    with pytest.raises(ValueError, match="fp8_data_path is a setting for inference: write infer"):
        plugin.convert_modules(model, fp8_data_path="here")
    measured: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "hpu_magic.lightning.fp8_inference.begin_measuring",
        lambda module, **settings: measured.append(settings),
    )
    plugin.convert_modules(model, inference=True, quant=False, fp8_data_path="here")
    assert measured == [{"dump_stats_path": os.path.join("here", "hqt")}]
    assert [HPUPrecisionPlugin(name).precision for name in (32, "bf16", 16)] == [
        "32-true",
        "bf16-mixed",
        "16-mixed",
    ]
