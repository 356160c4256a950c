"""Text of optimum-habana's Llama: the CPU's tokens, whatever is on for speed."""

from __future__ import annotations

from typing import Any

import pytest
from features import OPTIMUM_HABANA, proves
from optimum_habana_runs import PYTHON, in_both_modes, results

if not PYTHON:
    pytest.skip("`make huggingface` runs optimum-habana", allow_module_level=True)

LENGTH = 17  # of the prompts and what is generated


def generated(mode: str, case: str) -> dict[str, Any]:
    return results("generate", mode)[case]


def assert_tokens(mode: str, case: str, cpu: str = "greedy") -> None:
    expected = generated("cpu", cpu)["tokens"]
    assert [len(row) for row in expected] == [LENGTH, LENGTH]
    assert generated(mode, case)["tokens"] == expected


@proves(OPTIMUM_HABANA, "`generate`: greedy, sampling")
@in_both_modes
@pytest.mark.parametrize("case", ["greedy", "one likeliest"])
def test_the_likeliest_tokens_are_the_cpus(mode, case):
    assert_tokens(mode, case)
    assert generated(mode, case)["device"] == "hpu"


@proves(OPTIMUM_HABANA, "`generate`: greedy, sampling")
@in_both_modes
def test_samples_of_a_seed_are_the_cpus(mode):
    device = generated(mode, "sampled")
    assert device["first"] == device["again"] != device["other"]
    assert device == generated("cpu", "sampled")


@proves(
    OPTIMUM_HABANA,
    "`generate`: `reuse_cache`, `attn_softmax_bf16`, `use_flash_attention`, `trim_logits`",
)
@in_both_modes
@pytest.mark.parametrize(
    "case",
    [
        "reused cache",
        "buckets in a reused cache",
        "softmax in bf16",
        "flash attention",
        "flash attention, recomputed",
        "trimmed logits",
        "ends ignored",
    ],
)
def test_what_is_for_speed_changes_no_token(mode, case):
    assert_tokens(mode, case)


@proves(OPTIMUM_HABANA, "`generate`: `bucket_size`")
@in_both_modes
def test_a_bucket_is_filled_with_padding(mode):
    rows = generated(mode, "buckets")["tokens"]
    assert [row[:LENGTH] for row in rows] == generated("cpu", "greedy")["tokens"]
    assert [row[LENGTH:] for row in rows] == [[0] * (24 - LENGTH)] * 2


@proves(OPTIMUM_HABANA, "`generate`: HPU Graphs, with buckets, `limit_hpu_graphs`")
@pytest.mark.parametrize(
    ("case", "plain"),
    [
        ("graphs", "greedy"),
        ("graphs and buckets", "buckets"),
        ("first token without graphs", "greedy"),
        ("graphs and buckets in a reused cache", "buckets in a reused cache"),
    ],
)
def test_graphs_replay_the_same_tokens_in_lazy_mode_alone(case, plain):
    graphs = generated("lazy", case)
    assert graphs["replays"] > 5
    assert {**graphs, "replays": 0} == generated("lazy", plain)
    assert "HPU Graphs are for lazy mode only" in generated("eager", case)["refused"]


@proves(OPTIMUM_HABANA, "`generate`: beam search")
@pytest.mark.parametrize("case", ["beams", "beams in a reused cache"])
def test_beams_are_the_cpus_in_lazy_mode_alone(case):
    assert_tokens("lazy", case, cpu="beams")
    assert "Expected all tensors to be on the HPU device" in generated("eager", case)["refused"]


@proves(OPTIMUM_HABANA, "fp8 with an Intel Neural Compressor configuration")
@in_both_modes
@pytest.mark.parametrize("scales", ["maxabs_hw", "maxabs_pow2"])
def test_eight_bits_generate_what_bfloat16_does(mode, scales):
    device = results("quantize", mode)[scales]
    assert device["weight"] == "torch.float8_e4m3fn"
    assert len(device["tokens"][0]) == 13
    assert device["tokens"] == device["expected"]
    assert 0 < device["error"] < device["largest"] / 8
