"""Test estimates of mixture-of-experts models, and of experts that several cards share."""

from math import prod

import pytest
import torch
from torch import nn

import hpu_magic
from hpu_magic.estimates.cost.products import name_of
from hpu_magic.estimates.cost.work import Kind, touched, work_of
from hpu_magic.estimates.errors import EstimateError

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
}
TOKENS = torch.empty(4, 64, dtype=torch.long, device="meta")


def mixtral():
    config = transformers.MixtralConfig(
        **SIZES, intermediate_size=128, num_local_experts=8, num_experts_per_tok=2
    )
    return transformers.MixtralForCausalLM(config)


def qwen3_moe():
    config = transformers.Qwen3MoeConfig(
        **SIZES, moe_intermediate_size=32, num_experts=16, num_experts_per_tok=4, head_dim=16
    )
    return transformers.Qwen3MoeForCausalLM(config)


def gpt_oss():
    config = transformers.GptOssConfig(
        **SIZES, intermediate_size=64, num_local_experts=8, num_experts_per_tok=2, head_dim=16
    )
    return transformers.GptOssForCausalLM(config)


def deepseek_v3():
    sizes = {**SIZES, "num_hidden_layers": 3, "num_key_value_heads": 4, "intermediate_size": 128}
    config = transformers.DeepseekV3Config(
        **sizes,
        moe_intermediate_size=32,
        n_routed_experts=16,
        num_experts_per_tok=4,
        n_group=4,
        topk_group=2,
        q_lora_rank=32,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        v_head_dim=16,
        first_k_dense_replace=1,
    )
    return transformers.DeepseekV3ForCausalLM(config)


# Experts, experts per token, and layers with experts.
MODELS = [(mixtral, 8, 2, 2), (qwen3_moe, 16, 4, 2), (gpt_oss, 8, 2, 2), (deepseek_v3, 16, 4, 2)]
of_models = pytest.mark.parametrize(
    ("make", "experts", "choices", "layers"), MODELS, ids=[make.__name__ for make, *_ in MODELS]
)


def made(make):
    with torch.device("meta"):
        return make()


def parameters(model, *, of_experts):
    named = model.named_parameters()
    return [each for name, each in named if (".experts." in name) is of_experts]


def count(weights):
    return sum(map(torch.numel, weights))


def multiplications(program):
    """Return the number of multiplications and additions in all products with weights."""
    matrix = (each for each in program.operations if work_of(each).kind is Kind.MATRIX)
    products = (each for each in matrix if name_of(each.operator) != "bmm")
    return sum(product.flops for each in products for product in work_of(each).products)


@of_models
def test_a_step_stores_all_experts_and_computes_those_of_each_token(make, experts, choices, layers):
    model = made(make)
    common, own = (parameters(model, of_experts=each) for each in (False, True))
    for train, passes in ((False, 1), (True, 3)):
        found = hpu_magic.estimate(model, TOKENS, train=train, dtype="bf16", mode="lazy")
        assert found.memory["weights"] == 2 * (count(common) + count(own))
        matrices = [each for each in common if each.dim() == 2][1:]  # without the embedding
        active = (
            count(matrices) + count(each for each in own if each.dim() == 3) / experts * choices
        )
        assert multiplications(found.program) == passes * 2 * TOKENS.numel() * active


@of_models
@pytest.mark.parametrize("batch", [1, 5, 64])
def test_a_new_token_reads_the_experts_to_which_the_batch_is_routed(
    make, experts, choices, layers, batch
):
    found = hpu_magic.estimate_generation(made(make), batch=batch, prompt=16, new_tokens=4)
    program = found.times.tokens[0].program
    grouped = [each for each in program.operations if name_of(each.operator) == "_grouped_mm"]
    assert len(grouped) == 2 * layers
    distinct = experts * (1 - (1 - choices / experts) ** batch)
    for each in grouped:
        reads, _ = touched(each, Kind.MATRIX)
        matrix = 2 * prod(each.reads[1].shape[1:])
        assert reads[1].bytes == pytest.approx(distinct * matrix, abs=1)


@of_models
def test_cards_that_share_the_experts_store_a_part_of_them(make, experts, choices, layers):
    model = made(make)
    common, own = (count(parameters(model, of_experts=each)) for each in (False, True))
    part = 2 * (common + own // 4)
    step = hpu_magic.estimate(model, TOKENS, dtype="bf16", mode="lazy", cards=4, expert_parallel=4)
    assert step.memory["weights"] == part
    generation = hpu_magic.estimate_generation(
        model, prompt=16, new_tokens=4, cards=4, expert_parallel=4
    )
    assert generation.memory["weights"] == part


def test_states_of_the_optimizer_are_shared_like_the_experts():
    model = made(mixtral)
    common, own = (count(parameters(model, of_experts=each)) for each in (False, True))

    def states(**options):
        return hpu_magic.estimate(model, TOKENS, dtype="bf16", mode="lazy", **options).memory[
            "optimizer"
        ]

    assert states(cards=4, expert_parallel=4) == pytest.approx(4 * (common + own / 4), rel=1e-3)
    # ZeRO shards the float32 states of each expert across the two cards that have it.
    options = {"cards": 8, "parallel": "zero3"}
    assert states(**options, expert_parallel=4) == pytest.approx(states(**options), rel=1e-3)


@of_models
def test_tokens_are_exchanged_at_the_price_of_an_all_to_all(make, experts, choices, layers):
    model = made(make)
    size = TOKENS.numel() * choices * 64 * 2
    for imbalance in (1.0, 1.5):
        step = hpu_magic.estimate(
            model,
            TOKENS,
            train=False,
            dtype="bf16",
            cards=8,
            expert_parallel=8,
            imbalance=imbalance,
        )
        exchange = hpu_magic.estimate_collective("all_to_all", int(size * imbalance), cards=8)
        assert step.by_kind["links"] == pytest.approx(2 * layers * exchange.seconds)


def test_backward_pass_exchanges_gradients_of_tokens():
    def links(**options):
        step = hpu_magic.estimate(
            made(mixtral), TOKENS, dtype="bf16", mode="lazy", cards=8, **options
        )
        return step.by_kind["links"] - step.prices.exchange

    assert links() == 0
    size = TOKENS.numel() * 2 * 64 * 2
    exchange = hpu_magic.estimate_collective("all_to_all", size, cards=8)
    assert links(expert_parallel=8) == pytest.approx(2 * 2 * 2 * exchange.seconds)


@of_models
def test_busiest_card_computes_and_stores_more_tokens(make, experts, choices, layers):
    model = made(make)

    def step(imbalance):
        return hpu_magic.estimate(
            model,
            TOKENS,
            dtype="bf16",
            mode="lazy",
            cards=4,
            expert_parallel=4,
            imbalance=imbalance,
        )

    balanced, busiest = step(1.0), step(2.0)
    own = count(each for each in parameters(model, of_experts=True) if each.dim() == 3)
    more = 3 * 2 * TOKENS.numel() * own / experts * choices
    found = multiplications(busiest.program) - multiplications(balanced.program)
    assert found == pytest.approx(more)
    assert busiest.memory["weights"] == balanced.memory["weights"]
    assert busiest.memory["activations"] > balanced.memory["activations"]
    assert "expert_parallel=4,imbalance=2" in str(busiest)


def test_other_cards_use_tensor_parallelism_for_generation():
    found = hpu_magic.estimate_generation(
        made(mixtral), prompt=16, new_tokens=4, cards=8, expert_parallel=4
    )
    layout = found.settings.layout
    assert (layout.data, layout.tensor, layout.experts) == (4, 2, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cards": 16, "expert_parallel": 16}, "has 8 experts in a layer, .*use a divisor of 8"),
        ({"cards": 3, "expert_parallel": 3}, "expert_parallel=3 cannot divide equally"),
        ({"expert_parallel": 8}, "which is 1 .* is a multiple of 8: use cards=8"),
        ({"cards": 8, "parallel": "tp=2", "expert_parallel": 8}, "which is 4 .*use cards=16"),
        ({"expert_parallel": 0}, "expert_parallel=0 is not a number of cards"),
        ({"imbalance": 0.5}, "imbalance=0.5 is not a ratio of tokens: use 1.0 if"),
        ({"imbalance": float("nan")}, "imbalance=nan is not a ratio"),
        ({"imbalance": 1.5}, "imbalance=1.5 .* pass the number of these cards as expert_parallel"),
        ({"cards": 2, "expert_parallel": 2, "imbalance": 3}, "imbalance=3 is impossible"),
        ({"cards": 2, "expert_parallel": 2, "deepspeed": {}}, "cannot be combined with deepspeed"),
    ],
)
def test_impossible_distributions_are_refused(options, message):
    with pytest.raises(EstimateError, match=message):
        hpu_magic.estimate(made(mixtral), TOKENS, **options)


def test_models_without_experts_are_refused():
    with pytest.raises(EstimateError, match=r"Linear has no experts .*expert_parallel=2: omit it"):
        hpu_magic.estimate(nn.Linear(4, 4), torch.empty(2, 4), cards=2, expert_parallel=2)


def test_loop_over_experts_is_refused_with_the_implementation_to_use():
    model = made(mixtral)
    model.set_experts_implementation("eager")
    with pytest.raises(EstimateError, match=r'nonzero.*set_experts_implementation\("grouped_mm"\)'):
        hpu_magic.estimate(model, TOKENS)
