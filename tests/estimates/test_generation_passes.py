"""Test passes of language models over a prompt, and over one token with a cache."""

import pytest
import torch

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.generation.passes import passes_of, preallocated, with_cache_in
from hpu_magic.estimates.generation.protocol import protocol_of, tensors_of
from hpu_magic.estimates.memory import peak
from hpu_magic.estimates.tracing.program import Role

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
MODELS = {
    "grouped heads": lambda: transformers.LlamaConfig(**SIZES),
    "windows": lambda: transformers.MistralConfig(**SIZES, sliding_window=8),
    "windows in every other layer": lambda: transformers.Gemma2Config(
        **SIZES, head_dim=8, sliding_window=8
    ),
    "one KV head": lambda: transformers.GPTBigCodeConfig(
        vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4
    ),
    "learned positions": lambda: transformers.GPT2Config(
        vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4
    ),
    "no positions": lambda: transformers.BloomConfig(
        vocab_size=64, hidden_size=32, n_layer=2, n_head=4
    ),
}


def model_of(config, device="meta"):
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config).eval()


def held(cache):
    """Return the size of a cache's storages on the card, in bytes."""
    storages = {each.untyped_storage().data_ptr(): each for each in tensors_of(cache)}
    return sum(each.untyped_storage().nbytes() for each in storages.values())


def cache_bytes(traced):
    """Return the size of the cache after a traced pass, in bytes."""
    return sum(traced.program.storages[index].bytes for index in traced.after)


@pytest.mark.parametrize("kind", MODELS)
def test_cache_has_the_size_of_a_real_run(kind):
    model = model_of(MODELS[kind](), "cpu").to("hpu")
    with torch.no_grad():
        ids = torch.zeros(3, 11, dtype=torch.long, device="hpu")
        cache = model(input_ids=ids, use_cache=True).past_key_values
        after_prompt = held(cache)
        model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
        after_token = held(cache)
    with passes_of(model, protocol_of(model), torch.float32) as passes:
        assert cache_bytes(passes.prompt(3, 11)) == after_prompt
        assert cache_bytes(passes.token(3, 11)) == after_token


def traced(config, batch=2, prompt=6):
    model = model_of(config)
    with passes_of(model, protocol_of(model), torch.bfloat16) as passes:
        return passes.prompt(batch, prompt), passes.token(batch, prompt)


def test_static_cache_is_written_at_the_new_position():
    _, token = traced(MODELS["grouped heads"]())
    static = preallocated(token)
    layer = 2 * (2 * 2 * 8) * 2  # keys and values: batch x heads x width, in bf16
    assert cache_bytes(token) == cache_bytes(static) == 2 * 7 * layer
    joined = [each for each in token.program.operations if "cat" in str(each.operator)]
    written = [each for each in static.program.operations if "copy_" in str(each.operator)]
    into_cache = [each for each in joined if each.writes[0].storage in token.after]
    assert [sum(each.bytes for each in one.writes) for one in into_cache] == [7 * layer // 2] * 4
    assert [each.writes[0].bytes for each in written] == [layer // 2] * 4
    moment = peak(static.program, recorded=False)
    assert moment.by_role[Role.CACHE] == 2 * 7 * layer


def test_fp8_cache_halves_bytes_and_traffic():
    _, token = traced(MODELS["grouped heads"]())
    static = preallocated(token)
    narrow = with_cache_in(static, torch.float8_e4m3fn)
    assert 2 * cache_bytes(narrow) == cache_bytes(static)

    def read(one):
        attention = [each for each in one.program.operations if "attention" in str(each.operator)]
        return [operand.bytes for each in attention for operand in each.reads[1:]]

    assert [2 * each for each in read(narrow)] == read(static) == [2 * 2 * 7 * 8 * 2] * 4


def test_only_the_last_position_has_logits():
    prompt, _ = traced(MODELS["grouped heads"]())
    assert prompt.program.of_role(Role.LOGITS) == 2 * 64 * 2 + 2 * 64 * 4
    assert str(prompt.program.operations[-1].operator) == "aten.argmax.default"


def test_model_without_a_cache_is_refused():
    class Plain(torch.nn.Module):
        def forward(self, input_ids):
            return input_ids

    with pytest.raises(EstimateError, match="Plain has no cache"):
        protocol_of(Plain())
    with pytest.raises(EstimateError, match="Linear has no argument input_ids"):
        protocol_of(torch.nn.Linear(2, 2))


def test_encoder_with_decoder_is_refused():
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4}
    with torch.device("meta"):
        model = transformers.T5ForConditionalGeneration(
            transformers.T5Config(**sizes, vocab_size=64)
        )
    with pytest.raises(EstimateError, match="T5ForConditionalGeneration has an encoder"):
        protocol_of(model)
