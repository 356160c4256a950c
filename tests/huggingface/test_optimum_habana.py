"""optimum-habana and the releases that it was made for: the CPU's results, from the same seed.

Its releases are not those of the other tests, so each program runs in an environment of its own,
once in each mode and once on the CPU without optimum-habana.
"""

from __future__ import annotations

from typing import Any

import pytest
from features import OPTIMUM_HABANA, proves
from optimum_habana_runs import PYTHON, in_both_modes, results

if not PYTHON:
    pytest.skip("`make huggingface` runs optimum-habana", allow_module_level=True)


def fits(mode: str) -> dict[str, Any]:
    return results("train", mode)


def assert_fit(mode: str, case: str, norms: bool = True) -> None:
    """Compare with the CPU, whose AdamW rounds otherwise than the device's fused one."""
    device, cpu = fits(mode)[case], fits("cpu")[case]
    assert (device["device"], cpu["device"]) == ("hpu", "cpu")
    assert len(set(cpu["losses"])) == len(device["losses"]) > 2
    assert device["losses"] == pytest.approx(cpu["losses"], abs=6e-3)
    assert device["evaluation"] == pytest.approx(cpu["evaluation"], abs=6e-3)
    assert device["predictions"] == pytest.approx(cpu["predictions"], abs=6e-3)
    assert device["norms"] == (pytest.approx(cpu["norms"], abs=4e-2) if norms else [])
    assert device["memory"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: fused AdamW and clip norm")
@in_both_modes
def test_a_fit_with_the_fused_optimizer_equals_the_cpus(mode):
    assert_fit(mode, "fused")
    assert fits(mode)["fused"]["optimizer"] == "FusedAdamW"


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: PyTorch's AdamW")
@in_both_modes
def test_a_fit_with_pytorchs_optimizer_equals_the_cpus_and_tells_no_norms(mode):
    assert_fit(mode, "unfused", norms=False)
    assert fits(mode)["unfused"]["optimizer"] == "AdamW"


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: gradient accumulation")
@in_both_modes
def test_gradients_accumulate(mode):
    assert_fit(mode, "accumulated")


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: resuming from a checkpoint")
@in_both_modes
def test_a_fit_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(mode):
    assert fits(mode)["resumed"] == fits(mode)["fused"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: LoRA of peft")
@in_both_modes
def test_lora_trains_as_on_the_cpu(mode):
    assert_fit(mode, "lora")


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: bf16, as an argument and in the Gaudi configuration")
@in_both_modes
def test_bf16_is_the_cpus_by_argument_and_by_configuration(mode):
    assert_fit(mode, "bf16")
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
def test_what_is_for_speed_changes_no_number(mode, case):
    assert fits(mode)[case] == fits(mode)["fused"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: HPU Graphs in training and inference")
@pytest.mark.parametrize("case", ["graphs in training", "graphs in inference"])
def test_graphs_replay_the_same_numbers_in_lazy_mode_alone(case):
    plain, graphs = fits("lazy")["fused"], fits("lazy")[case]
    assert graphs["replays"] > 0
    assert {**graphs, "replays": 0} == plain
    assert "cannot be used in eager mode" in fits("eager")[case]["refused"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: `torch_compile`")
def test_compiled_fits_are_eager_modes_alone():
    assert fits("eager")["compiled"] == fits("eager")["fused"]
    assert "Invalid backend: 'hpu_backend'" in fits("lazy")["compiled"]["refused"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer`: live panel with `%%hpu_fit` and `hpu_magic.fit`")
@in_both_modes
@pytest.mark.parametrize("case", ["by the function", "in a cell"])
def test_a_fit_has_its_panel(mode, case):
    told = results("panel", mode)[case]
    assert (told["outcome"], told["steps"], told["batches"]) == ("finished", 4, 8)
    assert told["where"] == "epoch 2 of 2, batch 4 of 4"
    assert told["device"].startswith("hpu:0")
    assert {"loss", "eval_loss", "learning_rate", "train_loss"} < told["metrics"].keys()
    assert told["pictured"]


@proves(OPTIMUM_HABANA, "`GaudiTrainer` on two cards, with the runner of `gaudi_spawn.py`")
@in_both_modes
def test_two_cards_train_as_one_with_their_common_batch(mode):
    device, cpu = (results("spawn", where)["fit"] for where in (mode, "cpu"))
    assert (device["device"], device["cards"], device["backend"]) == ("hpu", 2, "hccl")
    assert len(device["losses"]) == 6
    assert device["losses"] == pytest.approx(cpu["losses"], abs=6e-3)
    assert device["norms"] == pytest.approx(cpu["norms"], abs=4e-2)
    assert device["evaluation"] == pytest.approx(cpu["evaluation"], abs=6e-3)
