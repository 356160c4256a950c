"""Test fits with optimum-habana against transformers on the CPU with the same seed.

optimum-habana needs older releases of the libraries, so each program runs in a separate
environment, once in each mode and once on the CPU without optimum-habana.
"""

import pytest
from features import OPTIMUM_HABANA, proves
from optimum_habana_runs import PYTHON, in_both_modes, results

if not PYTHON:
    pytest.skip("`make huggingface` runs optimum-habana", allow_module_level=True)


def fits(mode):
    return results("train", mode)


def assert_close_to_the_cpu(mode, case, norms=True):
    """Compare with the CPU, whose AdamW rounds differently from the fused optimizer."""
    device, cpu = fits(mode)[case], fits("cpu")[case]
    assert (device["device"], cpu["device"]) == ("hpu", "cpu")
    assert len(set(cpu["losses"])) == len(device["losses"]) > 2
    for name in ("losses", "evaluation", "predictions"):
        assert device[name] == pytest.approx(cpu[name], abs=6e-3)
    assert device["norms"] == (pytest.approx(cpu["norms"], abs=4e-2) if norms else [])
    assert device["memory"]


@proves(
    OPTIMUM_HABANA,
    "`GaudiTrainer`: fused AdamW and clip norm",
    "`GaudiTrainer`: PyTorch's AdamW",
    "`GaudiTrainer`: gradient accumulation",
    "`GaudiTrainer`: LoRA of peft",
)
@in_both_modes
@pytest.mark.parametrize(
    ("case", "optimizer"),
    [
        ("fused", "FusedAdamW"),
        ("unfused", "AdamW"),
        ("accumulated", "FusedAdamW"),
        ("lora", "FusedAdamW"),
    ],
)
def test_fit_is_close_to_the_cpu(mode, case, optimizer):
    assert_close_to_the_cpu(mode, case, norms=case != "unfused")
    assert fits(mode)[case]["optimizer"] == optimizer


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: resuming from a checkpoint")
@in_both_modes
def test_resumed_fit_equals_an_uninterrupted_one(mode):
    assert fits(mode)["resumed"] == fits(mode)["fused"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: bf16, as an argument and in the Gaudi configuration")
@in_both_modes
def test_bf16_is_enabled_by_argument_and_by_configuration(mode):
    assert_close_to_the_cpu(mode, "bf16")
    assert fits(mode)["bf16"]["losses"] != fits(mode)["fused"]["losses"]
    assert fits(mode)["autocast by configuration"] == fits(mode)["bf16"]


@proves(
    OPTIMUM_HABANA,
    "`GaudiTrainer`: `adjust_throughput`, `non_blocking_data_copy`, `pipelining_fwd_bwd`",
)
@in_both_modes
@pytest.mark.parametrize(
    "case", ["adjusted throughput", "data without waiting", "forward and backward overlapped"]
)
def test_options_for_speed_change_no_result(mode, case):
    assert fits(mode)[case] == fits(mode)["fused"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: HPU Graphs in training and inference")
@pytest.mark.parametrize("case", ["graphs in training", "graphs in inference"])
def test_graphs_change_no_result_and_need_lazy_mode(case):
    plain, graphs = fits("lazy")["fused"], fits("lazy")[case]
    assert graphs["replays"] > 0
    assert {**graphs, "replays": 0} == plain
    assert "cannot be used in eager mode" in fits("eager")[case]["refused"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: `torch_compile`")
def test_compiled_fit_needs_eager_mode():
    assert fits("eager")["compiled"] == fits("eager")["fused"]
    assert "Invalid backend: 'hpu_backend'" in fits("lazy")["compiled"]["refused"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: live panel with `%%hpu_fit` and `hpu_magic.fit`")
@in_both_modes
@pytest.mark.parametrize("case", ["by the function", "in a cell"])
def test_fit_has_a_panel(mode, case):
    fit = results("panel", mode)[case]
    assert (fit["outcome"], fit["steps"], fit["batches"]) == ("finished", 4, 8)
    assert fit["where"] == "epoch 2 of 2, batch 4 of 4"
    assert fit["device"].startswith("hpu:0")
    assert {"loss", "eval_loss", "learning_rate", "train_loss"} < fit["metrics"].keys()
    assert fit["has evaluation chart"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer` on two cards, with the runner of `gaudi_spawn.py`")
@in_both_modes
def test_two_cards_train_like_one_process(mode):
    device, cpu = (results("spawn", where)["fit"] for where in (mode, "cpu"))
    assert (device["device"], device["cards"], device["backend"]) == ("hpu", 2, "hccl")
    assert len(device["losses"]) == 6
    assert device["losses"] == pytest.approx(cpu["losses"], abs=6e-3)
    assert device["norms"] == pytest.approx(cpu["norms"], abs=4e-2)
    assert device["evaluation"] == pytest.approx(cpu["evaluation"], abs=6e-3)


@proves(OPTIMUM_HABANA, "`GaudiTrainer` on two cards: `--deepspeed ds_config.json`, ZeRO 0 to 3")
@in_both_modes
@pytest.mark.parametrize("stage", range(4))
def test_zero_stages_train_like_one_process(mode, stage):
    device, cpu = results("spawn", mode)[f"ZeRO {stage}"], results("spawn", "cpu")["fit"]
    assert (device["device"], device["cards"], device["backend"]) == ("hpu", 2, "hccl")
    kinds = ["FusedAdamW", *["DeepSpeedZeroOptimizer"] * 2, "DeepSpeedZeroOptimizer_Stage3"]
    assert device["optimizer"] == kinds[stage]
    assert device["losses"] == pytest.approx(cpu["losses"], abs=6e-3)
    # Without ZeRO, DeepSpeed does not report the norm of float32 gradients.
    assert device["norms"] == (pytest.approx(cpu["norms"], abs=4e-2) if stage else [])
    assert device["evaluation"] == pytest.approx(cpu["evaluation"], abs=6e-3)
