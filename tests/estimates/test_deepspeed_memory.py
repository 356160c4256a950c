"""Test estimates with a DeepSpeed configuration; other tests compare them with measurements."""

import json
from importlib import import_module

import pytest
import torch
from torch import nn

from hpu_magic import HPUError, command_line, estimate
from hpu_magic.estimates.deepspeed.options import (
    BF16,
    FP16,
    OFFLOAD_OPTIMIZER,
    OFFLOAD_PARAM,
    REMOVED,
    ZERO,
)

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


def test_whole_batch_determines_the_number_of_batches():
    batches = {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 4}
    assert estimated(zero(1) | batches).options.accumulate == 3
    assert estimated(zero(1) | {"train_batch_size": 24}, accumulate=4).options.accumulate == 4


def test_flags_are_read_like_deepspeed_reads_them():
    buckets = {"reduce_bucket_size": 10**6}
    words = estimated(zero(2, overlap_comm="no", **buckets) | {"bf16": {"enabled": 1}})
    flags = estimated(zero(2, overlap_comm=False, **buckets) | {"bf16": {"enabled": True}})
    overlapping = estimated(zero(2, overlap_comm="on", **buckets) | {"bf16": {"enabled": True}})
    assert words.peak == flags.peak < overlapping.peak


HALF = {"enabled": True}
BATCH = {"train_micro_batch_size_per_gpu": 4}
TRIPLE = {"train_batch_size": 16, **BATCH, "gradient_accumulation_steps": 1}
REFUSED_BY_DEEPSPEED = [
    ({"train_batch_size": 5}, "train_batch_size=5 .* is not a multiple of cards=2: use 4 or 6"),
    ({"train_batch_size": 1}, "train_batch_size=1 .* is not a multiple of cards=2: use 2"),
    (
        {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 3},
        "train_batch_size=16 .* of cards=2 x train_micro_batch_size_per_gpu=3: use 12 or 18",
    ),
    (
        {"train_batch_size": 16, "gradient_accumulation_steps": 3},
        "train_batch_size=16 .* of cards=2 x gradient_accumulation_steps=3: use 12 or 18",
    ),
    (TRIPLE, "train_batch_size=16 .* is not cards=2 x train_micro.*=4 x gradient.*=1: use 8"),
    ({"train_batch_size": 0}, "train_batch_size=0 .* must be an integer from 1"),
    ({"train_batch_size": "8"}, "train_batch_size='8' .* must be an integer from 1"),
    ({"train_micro_batch_size_per_gpu": -1}, "per_gpu=-1 .* must be an integer from 1"),
    (BATCH | {"gradient_accumulation_steps": 0}, "steps=0 .* must be an integer from 1"),
    ({"zero_optimization": None}, "zero_optimization=None .* must be an object with options"),
    ({"zero_optimization": []}, r"zero_optimization=\[\] .* must be an object with options"),
    (zero(-1), "stage=-1 .* must be an integer from 0 to 3"),
    (zero(2.5), "stage=2.5 .* must be an integer from 0 to 3"),
    (zero(2, reduce_bucket_size=0), "reduce_bucket_size=0 .* must be an integer from 1"),
    (zero(2, reduce_bucket_size=float("inf")), "reduce_bucket_size=inf .* integer from 1"),
    (zero(2, reduce_bucket_size=float("nan")), "reduce_bucket_size=nan .* integer from 1"),
    (zero(2, allgather_bucket_size=-1), "allgather_bucket_size=-1 .* must be an integer from 0"),
    (zero(2, reduce_scater=True), "reduce_scater is not an option.*did you mean 'reduce_scatter'"),
    (zero(3, stage3_reduce_scatter=True), "stage3_reduce_scatter is not an option of DeepSpeed"),
    (zero(2, contiguous_gradients="maybe"), "gradients='maybe' .* must be true or false"),
    (zero(2, contiguous_gradients=None), "gradients=None .* must be true or false"),
    (
        zero(3, max_reuse_distance=1, stage3_max_reuse_distance=2),
        "contains both max_reuse_distance and stage3_max_reuse_distance: remove one of them",
    ),
    (zero(3, compute_grad_norm=False), "compute_grad_norm=False .* requires ZeRO stage 1 or 2"),
    (zero(3, offload_optimizer={"device": "gpu"}), "device='gpu' .* must be one of 'none', 'cpu'"),
    (zero(3, offload_param={"device": None}), "offload_param.device=None .* must be one of"),
    (zero(3, offload_param="cpu"), "offload_param='cpu' .* must be an object with options"),
    (zero(3, offload_param={"ratio": 1}), "offload_param.ratio is not an option of DeepSpeed"),
    (zero(3, offload_optimizer={"ratio": 2}), "ratio=2 .* must be a number from 0 to 1"),
    (zero(3) | {"gradient_allreduce_op": "sum"}, "op='sum' .* is not supported by ZeRO stage 3"),
    ({"gradient_allreduce_op": "max"}, "op='max' .* must be one of 'mean', 'sum'"),
    ({"bf16": HALF, "fp16": HALF}, "enables fp16 and bf16: enable only one of them"),
    ({"bf16": {"enabled": "maybe"}}, "bf16.enabled='maybe' .* must be true or false"),
    ({"bf16": {"enable": True}}, "bf16.enable is not an option .*: did you mean 'enabled'"),
    ({"fp16": HALF | {"loss_scale": -1}}, "fp16.loss_scale=-1 .* must be a number from 0"),
    ({"optimizer": {"type": 3}}, "optimizer.type=3 .* is not an optimizer of DeepSpeed or PyTorch"),
    ({"optimizer": []}, r"optimizer=\[\] .* must be an object with options"),
    *(
        ({name: {"enabled": True}}, f"{name} .* is not supported by DeepSpeed 0.19.8: remove it")
        for name in REMOVED
    ),
]


@pytest.mark.parametrize(("configuration", "sentence"), REFUSED_BY_DEEPSPEED)
def test_configuration_that_deepspeed_refuses_is_refused(configuration, sentence):
    with pytest.raises(HPUError, match=sentence):
        estimated(configuration)


@pytest.mark.parametrize("configuration", [each for each, _ in REFUSED_BY_DEEPSPEED])
def test_deepspeed_refuses_the_same_configuration(configuration, monkeypatch):
    pytest.importorskip("deepspeed")
    from deepspeed.runtime.config import DeepSpeedConfig, DeepSpeedConfigError

    monkeypatch.setattr("deepspeed.comm.get_rank", lambda: 0)
    monkeypatch.setattr("deepspeed.comm.get_world_size", lambda: 2)
    batch = {} if "train_batch_size" in configuration else BATCH
    errors = AssertionError, AttributeError, TypeError, ValueError, DeepSpeedConfigError
    with pytest.raises(errors):
        DeepSpeedConfig(batch | configuration)


@pytest.mark.parametrize(
    ("options", "module", "name"),
    [
        (ZERO, "zero.config", "DeepSpeedZeroConfig"),
        (OFFLOAD_PARAM, "zero.offload_config", "DeepSpeedZeroOffloadParamConfig"),
        (OFFLOAD_OPTIMIZER, "zero.offload_config", "DeepSpeedZeroOffloadOptimizerConfig"),
        (BF16, "precision_config", "DeepSpeedBF16Config"),
        (FP16, "precision_config", "DeepSpeedFP16Config"),
    ],
)
def test_options_are_those_of_deepspeed(options, module, name):
    pytest.importorskip("deepspeed")
    found = getattr(import_module(f"deepspeed.runtime.{module}"), name).model_fields
    assert set(options) == {*found, *(each.alias for each in found.values() if each.alias)}


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
        (zero("auto"), {}, "stage='auto' .* must be an integer from 0 to 3"),
        (zero(3, offload_param={"device": "nvme"}), {}, "no asynchronous I/O .* use 'cpu'"),
        (zero(2, cpu_offload=True), {}, 'use "offload_optimizer": {"device": "cpu"}'),
        ({"optimizer": {"type": "Foo"}}, {}, "'Foo' .* of DeepSpeed or PyTorch: use 'AdamW'"),
        ({"optimizer": {"type": "sgd"}}, {}, "optimizer.type='sgd' .* did you mean 'SGD'"),
        (
            {"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}},
            {},
            "max_grad_norm .* is not supported by DeepSpeed: use gradient_clipping",
        ),
        ({"data_types": {"param_dtype": "bf16"}}, {}, "param_dtype='bf16' .* differs from the"),
        ({"optimizer": {"type": "Lion"}}, {}, "type='Lion' .* is not supported by estimates"),
        ({"bf16": {"bf16_optimizer_states": True}}, {}, "states .* not supported by estimates"),
        ({"tensor_parallel": {"autotp_size": 2}}, {}, "autotp_size=2 .* not supported by est"),
        ({"compile": {"deepcompile": True}}, {}, "deepcompile=True .* not supported by estimates"),
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
