"""Test text generation with optimum-habana's Llama against transformers on the CPU."""

import pytest
from features import OPTIMUM_HABANA, proves
from optimum_habana_runs import PYTHON, in_both_modes, results

if not PYTHON:
    pytest.skip("`make huggingface` runs optimum-habana", allow_module_level=True)

LENGTH = 17  # number of prompt and generated tokens


def generated(mode, case):
    return results("generate", mode)[case]


def assert_tokens(mode, case, cpu="greedy"):
    expected = generated("cpu", cpu)["tokens"]
    assert [len(row) for row in expected] == [LENGTH, LENGTH]
    assert generated(mode, case)["tokens"] == expected


@proves(OPTIMUM_HABANA, "`generate`: greedy, sampling")
@in_both_modes
@pytest.mark.parametrize("case", ["greedy", "most likely"])
def test_most_likely_tokens_equal_the_cpu(mode, case):
    assert_tokens(mode, case)
    assert generated(mode, case)["device"] == "hpu"


@proves(OPTIMUM_HABANA, "`generate`: greedy, sampling")
@in_both_modes
def test_samples_from_a_seed_equal_the_cpu(mode):
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
def test_options_for_speed_change_no_token(mode, case):
    assert_tokens(mode, case)


@proves(OPTIMUM_HABANA, "`generate`: `bucket_size`")
@in_both_modes
def test_last_bucket_is_filled_with_padding(mode):
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
def test_graphs_change_no_token_and_need_lazy_mode(case, plain):
    graphs = generated("lazy", case)
    assert graphs["replays"] > 5
    assert {**graphs, "replays": 0} == generated("lazy", plain)
    assert "HPU Graphs are only supported in lazy mode" in generated("eager", case)["refused"]


@proves(OPTIMUM_HABANA, "`generate`: beam search")
@pytest.mark.parametrize("case", ["beams", "beams in a reused cache"])
def test_beams_equal_the_cpu_and_need_lazy_mode(case):
    assert_tokens("lazy", case, cpu="beams")
    assert "Expected all tensors to be on the HPU device" in generated("eager", case)["refused"]


@proves(OPTIMUM_HABANA, "fp8 with an Intel Neural Compressor configuration")
@in_both_modes
@pytest.mark.parametrize("scales", ["maxabs_hw", "maxabs_pow2"])
def test_fp8_generates_the_tokens_of_bfloat16(mode, scales):
    device = results("quantize", mode)[scales]
    assert device["weight"] == "torch.float8_e4m3fn"
    assert len(device["tokens"][0]) == 13
    assert device["tokens"] == device["expected"]
    assert 0 < device["error"] < device["largest"] / 8
