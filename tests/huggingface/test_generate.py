"""transformers' `generate` on the device: the tokens equal the CPU's."""

import os
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from features import TRANSFORMERS, proves
from tiny_models import gpt2, llama, t5, tokens

ALL = "HPU_MAGIC_TEST_ALL_MODELS" in os.environ
MODELS = [llama, gpt2, t5]

GREEDY = {"do_sample": False}
STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": GREEDY,
    "top-k": {"do_sample": True, "top_k": 5, "temperature": 0.9},
    "beams": {"do_sample": False, "num_beams": 3},
}
MORE_STRATEGIES: dict[str, dict[str, Any]] = {
    "top-p": {"do_sample": True, "top_p": 0.8, "top_k": 0},
    "min-p": {"do_sample": True, "min_p": 0.05, "typical_p": 0.9},
    "sampled beams": {"do_sample": True, "num_beams": 2},
    "several sequences": {"do_sample": True, "num_return_sequences": 2},
    "penalties": {**GREEDY, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
}
CACHES: dict[str, dict[str, Any]] = {
    "dynamic": {"cache_implementation": "dynamic"},
    "static": {"cache_implementation": "static"},
    "none": {"use_cache": False},
}


def generated(make, device, **options):
    torch.manual_seed(0)
    model = make().to(device).eval()
    prompt = tokens(2, 6).to(device)
    mask = torch.ones_like(prompt)
    mask[0, :2] = 0  # a shorter prompt
    torch.manual_seed(5)
    return model.generate(prompt, attention_mask=mask, max_new_tokens=12, **options)


def assert_equals_the_cpu(make, **options):
    found, expected = generated(make, "hpu", **options), generated(make, "cpu", **options)
    assert found.device.type == "hpu"
    assert expected[:, -12:].unique().numel() > 1, "nothing was generated"
    assert torch.equal(found.cpu(), expected)
    return expected


@proves(TRANSFORMERS, "`generate`: greedy, sampling, beam search (Llama, GPT-2, T5)")
@pytest.mark.parametrize("strategy", [*STRATEGIES, *(MORE_STRATEGIES if ALL else {})])
@pytest.mark.parametrize("make", MODELS)
def test_each_strategy_generates_the_tokens_of_the_cpu(make, strategy):
    options = {**STRATEGIES, **MORE_STRATEGIES}[strategy]
    found = assert_equals_the_cpu(make, **options)
    if strategy != "greedy" and make is not t5:
        assert not torch.equal(found, generated(make, "cpu", **GREEDY))


@proves(TRANSFORMERS, "`generate`: dynamic, static and no cache")
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("make", MODELS if ALL else [llama])
def test_each_cache_generates_the_tokens_of_the_cpu(make, cache):
    found = assert_equals_the_cpu(make, **GREEDY, **CACHES[cache])
    assert torch.equal(found, generated(make, "cpu", **GREEDY))


@proves(TRANSFORMERS, "`generate`: cache offloaded to the host")
def test_offloaded_cache_requires_cuda_on_every_device():
    for device in ("hpu", "cpu"):
        with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
            generated(llama, device, **GREEDY, cache_implementation="offloaded")
