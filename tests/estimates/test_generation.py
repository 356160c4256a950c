"""Test estimates of text generation: time, memory, largest batch, and errors."""

import pickle
from dataclasses import replace

import pytest
import torch

import hpu_magic
from hpu_magic.estimates.cost.hardware import GENERATIONS
from hpu_magic.estimates.cost.products import Product
from hpu_magic.estimates.cost.work import Kind, work_of
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.generation.estimator import NearlyLinear
from hpu_magic.estimates.generation.passes import passes_of
from hpu_magic.estimates.generation.protocol import protocol_of
from hpu_magic.estimates.generation.times import weights_of

transformers = pytest.importorskip("transformers")

LAYERS, HIDDEN, FFN, VOCABULARY, HEADS, KV_HEADS, POSITIONS = 2, 32, 48, 64, 4, 2, 64
# Bytes of keys and values of one token in bf16.
TOKEN = LAYERS * 2 * (HIDDEN // HEADS * KV_HEADS) * 2

# A buffer of rotary embeddings, and its original, in float32.
ANGLES = 4 * (HIDDEN // HEADS // 2) * 2


@pytest.fixture(scope="module")
def model():
    return llama(HIDDEN, FFN)


def llama(hidden, ffn):
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=ffn,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=POSITIONS,
    )
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


@pytest.fixture
def small_card(monkeypatch):
    """Return a function that reduces the memory of Gaudi2."""

    def shrink(memory):
        card = replace(GENERATIONS["gaudi2"], memory=memory)
        monkeypatch.setitem(GENERATIONS, "gaudi2", card)

    return shrink


def estimated(model, batch=2, prompt=10, new_tokens=6, **options):
    return hpu_magic.estimate_generation(
        model, batch=batch, prompt=prompt, new_tokens=new_tokens, **options
    )


def weights_of_products():
    layer = HIDDEN * HIDDEN * 2 + HIDDEN * HIDDEN // HEADS * KV_HEADS * 2 + 3 * HIDDEN * FFN
    return LAYERS * layer + VOCABULARY * HIDDEN


def test_memory_consists_of_weights_cache_and_the_prompts_pass(model):
    found = estimated(model, batch=3)
    others = VOCABULARY * HIDDEN + (2 * LAYERS + 1) * HIDDEN
    weights = 2 * (weights_of_products() + others)
    assert (found.memory["weights"], found.memory["KV cache"]) == (weights, 3 * 16 * TOKEN)
    assert found.peak == sum(found.memory.values())
    assert found.memory["buffers"] == ANGLES
    assert found.fits


def test_graphs_store_one_sequence_of_a_layers_results(model):
    one, many = (
        {mode: estimated(model, batch=batch, mode=mode) for mode in ("eager", "lazy")}
        for batch in (1, 64)
    )
    temporary = {mode: each.memory["temporary results"] for mode, each in many.items()}
    hidden = 64 * 10 * HIDDEN * 2
    # In lazy mode, at most the hidden states before and after one layer exist at the same time.
    assert hidden <= temporary["lazy"] <= 2 * hidden + one["lazy"].memory["temporary results"]
    assert temporary["eager"] > 64 * 10 * 3 * FFN * 2


@pytest.mark.parametrize("mode", ["eager", "graphs"])
def test_dynamic_cache_remains_after_the_pass(model, mode):
    found = estimated(model, batch=3, prompt=20, new_tokens=2, cache="dynamic", mode=mode)
    assert 3 * 20 * TOKEN <= found.memory["KV cache"] <= 3 * 21 * TOKEN


def test_fp8_halves_matrix_weights_and_cache(model):
    wide = estimated(model, batch=3)
    narrow = estimated(model, batch=3, dtype="fp8")
    assert wide.memory["weights"] - narrow.memory["weights"] == weights_of_products()
    assert wide.memory["KV cache"] == 2 * narrow.memory["KV cache"]
    kept = estimated(model, batch=3, dtype="fp8", cache_dtype="bf16")
    assert kept.memory["KV cache"] == wide.memory["KV cache"]


def test_cards_share_weights_and_kv_heads(model):
    one = estimated(model)
    two = estimated(model, cards=2)
    four = estimated(model, cards=4)
    assert two.memory["weights"] == one.memory["weights"] / 2
    assert two.memory["KV cache"] == one.memory["KV cache"] / 2
    # There are two KV heads, so each of four cards keeps one.
    assert four.memory["KV cache"] == two.memory["KV cache"]
    assert "links" in two.by_kind
    assert "links" not in one.by_kind


def test_times_add_up(model):
    found = estimated(model)
    assert found.seconds == pytest.approx(found.first_token_seconds + 5 * found.token_seconds)
    assert found.tokens_per_second == pytest.approx(2 * 6 / found.seconds)
    assert sum(found.by_kind.values()) == pytest.approx(found.seconds)
    low, high = found.band
    assert low < 1 < high


@pytest.mark.parametrize("options", [{}, {"cards": 2, "parallel": "tp=2"}, {"dtype": "fp32"}])
def test_one_pass_has_the_same_band_in_both_estimates(model, options):
    ids = torch.empty(1, 10, dtype=torch.long, device="meta")
    options = {"dtype": "bf16", "mode": "graphs", **options}
    forward = hpu_magic.estimate(model, ids, train=False, **options)
    assert estimated(model, 1, 10, 1, **options).band == forward.band


def test_fused_attention_makes_long_prompts_faster(model):
    fused, several = (
        estimated(model, 4096, prompt=60, new_tokens=2, attention=how) for how in ("fused", "torch")
    )
    assert fused.first_token_seconds < several.first_token_seconds
    assert "fused attention" in fused.title()


def test_groups_of_cards_generate_a_batch_each(model):
    one, four = estimated(model, 3), estimated(model, 3, cards=4, parallel="tp=2")
    assert (one.batch, four.batch) == (3, 3)
    assert four.samples_per_second == pytest.approx(2 * 3 / four.seconds)
    assert four.tokens_per_second == pytest.approx(6 * four.samples_per_second)


def test_copying_the_cache_at_each_token_costs_time(model):
    static, dynamic = (
        estimated(model, batch=2048, prompt=60, new_tokens=2, cache=kind)
        for kind in ("static", "dynamic")
    )
    assert dynamic.token_seconds > static.token_seconds


def test_buckets_avoid_reading_unused_positions(model):
    whole, bucketed, fine = (
        estimated(model, batch=4096, prompt=4, new_tokens=56, bucket=bucket)
        for bucket in (None, 16, 4)
    )
    assert whole.token_seconds > bucketed.token_seconds > fine.token_seconds
    assert whole.memory == bucketed.memory == fine.memory


def test_largest_batch_is_the_largest_that_fits(model, small_card):
    small_card(4 << 20)
    most = estimated(model, batch="largest")
    two = estimated(model)
    assert most.batch == most.largest_batch == two.largest_batch > 100
    assert most.fits
    assert not estimated(model, batch=most.batch + 1).fits


def test_missing_memory_is_reported_with_changes_that_fit(model, small_card):
    small_card(20_000)
    with pytest.raises(EstimateError) as refusal:
        estimated(model, batch="largest")
    assert "A card needs" in str(refusal.value)
    assert 'dtype="fp8" or parallel="tp=4" with 4 cards' in str(refusal.value)
    warned = estimated(model, batch=8)
    assert not warned.fits
    assert "use a smaller batch or" in repr(warned)
    assert warned.largest_batch == 0


def test_each_figure_is_shown_as_an_estimate_with_its_band(model):
    text = repr(estimated(model))
    lines = text.splitlines()
    assert lines[0] == (
        "Estimate: LlamaForCausalLM generates 6 tokens after 10 on gaudi2 "
        "(graphs mode, bf16, bf16 static cache, batch 2)"
    )
    figures = [line for line in lines if "token" in line.partition("(")[0] and "(est" in line]
    assert len(figures) == 3
    assert all("(estimate; " in line and " to " in line for line in figures)
    html = estimated(model)._repr_html_()
    assert "<b>Estimate: LlamaForCausalLM generates 6 tokens" in html


def test_pickled_estimate_is_displayed_without_its_model(model, small_card):
    small_card(2**26)  # few traces find the largest batch
    report = estimated(model, batch=1, prompt=4, new_tokens=4)
    found = pickle.loads(pickle.dumps(report))
    assert (repr(found), found._repr_html_()) == (repr(report), report._repr_html_())
    compiled = estimated(torch.compile(model), batch=1, prompt=4, new_tokens=4)
    assert compiled.title() == report.title()


def test_captured_prompt_keeps_memory(model):
    plain = estimated(model)
    captured = estimated(model, capture_prompt=True)
    assert captured.memory["graphs"] > 5 * plain.memory["graphs"] > 0
    assert "graphs" not in estimated(model, mode="lazy").memory


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": 0}, r"prompt must be an integer from 1 to 1000000000, but is 0"),
        ({"new_tokens": 0}, r"new_tokens must be an integer"),
        ({"batch": 0}, r"batch must be an integer .*, but is 0"),
        ({"batch": "large"}, r"batch must be an integer .*, but is 'large'"),
        ({"prompt": 60}, r"prompt=60 plus new_tokens=6 is 66 tokens, but the model has only 64"),
        ({"cache_dtype": "int4"}, r"cache_dtype='int4' is not a valid choice"),
        ({"dtype": "fp8", "card": "gaudi"}, r"dtype='fp8' is not supported by gaudi"),
        ({"cache_dtype": "fp8", "card": "gaudi"}, r"cache_dtype='fp8' is not supported by gaudi"),
        ({"cards": 3}, r"4 attention heads are not divisible by tp=3"),
        ({"cards": 2, "parallel": "zero3"}, r"zero3 is only supported for training"),
        ({"cards": 64, "parallel": "pp=64"}, r"pp=64 needs at least one layer .* has \d layers in"),
        ({"card": "gaudi9"}, r"card='gaudi9' is unknown"),
        ({"mode": "graph"}, r"mode='graph' is not a valid choice"),
        ({"cache": "paged"}, r"cache='paged' is not a valid choice"),
    ],
)
def test_invalid_argument_gets_one_sentence(model, arguments, message):
    with pytest.raises(EstimateError, match=message):
        estimated(model, **arguments)


def test_positions_between_known_ones_are_interpolated():
    assert weights_of([10, 14, 20], range(10, 15)) == {10: 2.5, 14: 2.5, 20: 0.0}


def test_few_traces_predict_a_straight_line():
    traced = []

    def trace(at):
        traced.append(at)
        return 100 + 7 * at

    needed = NearlyLinear(trace, {})
    assert [needed(at) for at in (2, 4, 50, 51, 60)] == [114, 128, 450, 457, 520]
    assert traced == [2, 4, 50]


def test_time_does_not_depend_on_whether_weights_need_gradients():
    model = llama(1024, 1536)
    trainable = estimated(model, batch=64)
    frozen = estimated(model.requires_grad_(False), batch=64)
    assert frozen.seconds == pytest.approx(trainable.seconds, rel=0.01)


def test_query_heads_that_share_a_kv_head_are_rows_of_one_product(model):
    with passes_of(model, protocol_of(model), torch.bfloat16) as passes:
        token = passes.token(3, 9)
    works = [work_of(each) for each in token.program.operations]
    found = [each.products for each in works if each.kind is Kind.ATTENTION]
    group, width = HEADS // KV_HEADS, HIDDEN // HEADS
    scores = Product(3 * KV_HEADS, group, 10, width)
    assert found == [(scores, Product(3 * KV_HEADS, group, width, 10))] * LAYERS
