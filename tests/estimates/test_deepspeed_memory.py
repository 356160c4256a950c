"""Estimates with DeepSpeed's configuration; tests on two cards compare them with measurements."""

import json

import pytest
import torch
from torch import nn

from hpu_magic import HPUError, command_line, estimate

X = torch.ones(4, 64)


def model():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))


WEIGHTS = 2 * (64 * 64 + 64)


def estimated(configuration, **options):
    return estimate(model(), X, **{"cards": 2, "deepspeed": configuration, **options})


def zero(stage, **options):
    return {"zero_optimization": {"stage": stage, "reduce_bucket_size": 1000, **options}}


def test_configuration_is_read_from_a_file(tmp_path):
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(zero(2) | {"bf16": {"enabled": True}}))
    found = estimated(str(path))
    assert (str(found.layout), found.options.dtype) == ("zero2", "bf16")
    assert found.peak == estimated(json.loads(path.read_text())).peak


def test_magic_reads_a_file_or_a_variable(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds_config.json").write_text(json.dumps(zero(3)))
    shell.user_ns.update(net=model(), x=X, chosen=zero(3))
    shell.run_line_magic("load_ext", "hpu_magic")
    found = [
        shell.run_line_magic("hpu_estimate", f"net --inputs x --cards 2 --deepspeed {given}")
        for given in ("ds_config.json", "chosen")
    ]
    assert [str(each.layout) for each in found] == ["zero3", "zero3"]
    assert found[0].peak == found[1].peak


def test_terminal_reads_a_file(capsys, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "models_of_deepspeed.py").write_text(
        "from torch import nn\n\ndef make():\n    return nn.Linear(64, 64)\n"
    )
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(zero(1)))
    words = [
        "models_of_deepspeed:make",
        "--inputs",
        "4x64",
        "--cards",
        "2",
        "--deepspeed",
        str(path),
    ]
    assert command_line.main(["estimate", *words]) == 0
    assert "2 x gaudi2 (eager mode, fp32, batch 4, adamw, zero1)" in capsys.readouterr().out


@pytest.mark.parametrize("stage", range(4))
def test_configuration_of_lightnings_strategy_is_accepted(stage):
    pytest.importorskip("deepspeed")
    from hpu_magic.lightning import HPUDeepSpeedStrategy

    config = HPUDeepSpeedStrategy(stage=stage).config
    found = estimated(config)
    bucket = config["zero_optimization"]["reduce_bucket_size"] if stage else 0
    assert bucket * 4 <= found.peak < bucket * 9 + 50 * WEIGHTS


def test_configuration_selects_optimizer_and_number_of_batches():
    more = {"optimizer": {"type": "SGD"}, "gradient_accumulation_steps": 4}
    found = estimated(zero(1) | more)
    assert (found.options.optimizer, found.options.accumulate) == ("sgd", 4)
    adam = {"optimizer": {"type": "Adam", "params": {"torch_adam": True}}}
    assert estimated(zero(1) | adam).options.optimizer == "adam"


def test_default_buckets_are_counted():
    small = estimated(zero(2)).peak
    default = estimated({"zero_optimization": {"stage": 2}}).peak
    assert default - small > 4 * 5e8 - WEIGHTS * 4


def test_optimizer_on_the_host_needs_no_memory_of_the_card():
    found = estimated(zero(2, offload_optimizer={"device": "cpu"}))
    assert "optimizer" not in found.memory
    assert "optimizer" in estimated(zero(2)).memory


def test_sizes_that_are_auto_depend_on_the_hidden_size():
    net = model()
    net.config = type("Configuration", (), {"hidden_size": 10})()
    found = estimate(net, X, cards=2, deepspeed=zero(2, reduce_bucket_size="auto"))
    assert found.peak == estimated(zero(2, reduce_bucket_size=100)).peak


def test_largest_batch_includes_buckets():
    with pytest.raises(HPUError, match=r"A batch of 1 needs .* does not fit on a card"):
        estimated(zero(2, reduce_bucket_size=30 * 10**9), batch="largest")
    assert estimated(zero(2), batch="largest").largest > 1


@pytest.mark.parametrize(
    ("configuration", "options", "sentence"),
    [
        (3, {}, "deepspeed is a int: pass DeepSpeed's configuration, a dict or the path"),
        ("missing.json", {}, r"'missing.json' cannot be read \(No such file or directory\)"),
        (
            zero(4),
            {},
            "zero_optimization.stage=4 in the DeepSpeed configuration must be an i",
        ),
        (zero(2, reduce_bucket_size="big"), {}, "reduce_bucket_size='big' in the DeepSpeed conf"),
        ({"zero_optimization": 2}, {}, "zero_optimization=2 in the DeepSpeed configuration must"),
        (zero(3, zero_quantized_weights=True), {}, "zero_quantized_weights in the DeepSpeed conf"),
        (
            zero(1) | {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}},
            {},
            "data_types.grad_accum_dtype='fp32' in the DeepSpeed configuration differs from",
        ),
        (zero(1), {"parallel": "zero1"}, "parallel='zero1' cannot be combined with deepspeed"),
        (zero(1), {"dtype": "bf16"}, "dtype='bf16' contradicts the DeepSpeed configuration"),
        (zero(1), {"train": False}, "deepspeed is only supported for training"),
    ],
)
def test_unsuitable_configuration_is_refused(configuration, options, sentence):
    with pytest.raises(HPUError, match=sentence):
        estimated(configuration, **options)


def test_file_that_is_not_json_is_refused(tmp_path):
    path = tmp_path / "ds_config.json"
    path.write_text("{")
    with pytest.raises(HPUError, match="is not valid JSON"):
        estimated(path)
    path.write_text("[]")
    with pytest.raises(HPUError, match="contains a list, but must contain an object"):
        estimated(path)
