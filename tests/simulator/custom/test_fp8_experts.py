"""Test the FP8 mixture of experts against float64 and the same casts: bfloat16 within 3e-2."""

import pytest
import torch
from in_modes import run
from operator_tensors import E4M3, assert_matches, on_device, rejects

mixture = torch.ops.hpu.mixture_of_experts
T, H, F, E, K = 6, 8, 5, 4, 2
REST = False, "silu", 0, E - 1


def samples(seed=0, tokens=T):
    made = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, H, generator=made).to(E4M3)
    table = torch.randint(0, E, (tokens, K), generator=made)
    weights = torch.rand(tokens, K, generator=made).bfloat16()
    shapes = [(H, F), (H, F), (F, H)]
    lists = [[torch.randn(shape, generator=made).to(E4M3) for _ in range(E)] for shape in shapes]
    return hidden, table, weights, lists


class Scales:
    """Dequantization factors per tensor or per output channel."""

    def __init__(self, by_channel=False):
        def of(width, i):
            return torch.rand(width) + 0.25 if by_channel else torch.tensor(0.25 * (i + 1))

        torch.manual_seed(3)
        self.hidden = torch.tensor(0.5)
        self.inner = [torch.tensor(0.125 * (i + 1)) for i in range(E)]
        self.weights = [[of(width, i) for i in range(E)] for width in (F, F, H)]


def reference(hidden, table, weights, lists, scales, dynamic=False):
    out = torch.zeros(hidden.shape, dtype=torch.float64)
    x = hidden.double() * scales.hidden.double()
    for expert in range(E):
        gate, up, down = (
            each[expert].double() * factors[expert].double()
            for each, factors in zip(lists, scales.weights, strict=True)
        )
        its = (table == expert).any(1)
        if not its.any():
            continue
        inner = torch.nn.functional.silu(x[its] @ gate) * (x[its] @ up)
        factor = inner.abs().max() / 240 if dynamic else scales.inner[expert].double()
        inner = (inner / factor).clamp(-240, 240).float().to(E4M3).double() * factor
        share = (weights.double() * (table == expert)).sum(1, keepdim=True)[its]
        out[its] += share * (inner @ down)
    return out


def assert_near(actual, expected):
    magnitude = expected.abs().max().item()
    assert_matches(actual / magnitude, expected / magnitude, torch.bfloat16, reduced=3e-2)


def fused(lists):
    joined = [
        torch.cat([a.float(), b.float()], 1).to(E4M3) for a, b in zip(*lists[:2], strict=True)
    ]
    return [joined, lists[2]]


def fused_factors(factors):
    pairs = zip(*factors[:2], strict=True)
    return [[torch.cat([a.expand(F), b.expand(F)]) for a, b in pairs], factors[2]]


def named(names, lists):
    return {name: on_device(each) for name, each in zip(names, lists, strict=True)}


THREE, TWO = ("w1", "w2", "w3"), ("w12", "w3")


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("by_channel", [False, True], ids=["scalar", "channel"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("form", ["three", "two"])
def test_tokens_weights_and_inner_values_are_quantized(form, dynamic, by_channel, permuted):
    hidden, table, weights, lists = samples()
    scales = Scales(by_channel)
    expected = reference(hidden, table, weights, lists, scales, dynamic)
    names, weight_lists, factors = THREE, lists, scales.weights
    if form == "two":
        names, weight_lists, factors = TWO, fused(lists), fused_factors(scales.weights)
    if permuted:
        weight_lists = [[each.t().contiguous() for each in one] for one in weight_lists]
    overload = "fp8" + ("_fused_weights" if form == "two" else "") + ("_dynamic" if dynamic else "")
    inner = {} if dynamic else {"d_scale_intermediate_hidden_states": on_device(scales.inner)}
    actual = getattr(mixture, overload)(
        **dict(
            zip(
                ("hidden_states", "expert_routing_table", "router_weights"),
                on_device((hidden, table, weights)),
                strict=True,
            )
        ),
        **named(names, weight_lists),
        d_scale_hidden_states=scales.hidden.to("hpu"),
        **inner,
        **named([f"d_scale_{name}" for name in names], factors),
        permuted_weights=permuted,
        activation="silu",
        experts_min=0,
        experts_max=E - 1,
    )
    assert_near(actual, expected)


@pytest.mark.parametrize("form", ["three", "two"])
def test_scales_may_be_python_numbers(form):
    hidden, table, weights, lists = samples()
    scales = Scales()
    if form == "two":
        scales.weights[1] = scales.weights[0]
    expected = reference(hidden, table, weights, lists, scales)
    numbers = [[each.item() for each in one] for one in scales.weights]
    inner = [each.item() for each in scales.inner]
    routed = on_device((hidden, table, weights))
    operator = mixture.fp8_scalars
    if form == "two":
        operator, lists, numbers = mixture.fp8_fused_weights_scalars, fused(lists), numbers[1:]
    arguments = *routed, *map(on_device, lists), 0.5, inner, *numbers, *REST
    actual = operator(*arguments)
    assert_near(actual, expected)
    hinted = operator(*arguments, chunk_size=2, total_experts=9)
    assert torch.equal(hinted.cpu(), actual.cpu())


def test_each_token_may_have_its_own_scale():
    hidden, table, weights, lists = samples()
    scales = Scales()
    scales.hidden = torch.rand(T, 1) + 0.5
    expected = reference(hidden, table, weights, lists, scales, dynamic=True)
    actual = mixture.fp8_dynamic(
        *on_device((hidden, table, weights)),
        *map(on_device, lists),
        scales.hidden.to("hpu"),
        *map(on_device, scales.weights),
        *REST,
    )
    assert_near(actual, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": torch.ones(T, H).bfloat16()}, "hidden_states must be of float8_e5m2 or float8"),
        ({"lists": [[torch.ones(H, F)] * E] * 3}, "weights must be 2D of float8_e5m2 or float8"),
        ({"inner": [torch.tensor(1.0)]}, "must have a scale for each of 4 experts, but got 1."),
        (
            {"factors": [[torch.ones(F)] * E, [torch.ones(F)] * E, [torch.ones(F)] * E]},
            "d_scale_w3 must have one element or one for each of 8 output channels, but got 5.",
        ),
    ],
    ids=["hidden", "weights", "inner", "channels"],
)
def test_invalid_fp8_mixture_is_rejected(change, message):
    hidden, table, weights, lists = samples()
    scales = Scales()
    with rejects(message):
        run(
            mixture.fp8,
            *on_device((change.get("hidden", hidden), table, weights)),
            *map(on_device, change.get("lists", lists)),
            scales.hidden.to("hpu"),
            on_device(change.get("inner", scales.inner)),
            *map(on_device, change.get("factors", scales.weights)),
            *REST,
        )


def everything(hidden, table, weights, *experts):
    lists = [list(experts[i * E : (i + 1) * E]) for i in range(3)]
    routed = hidden, table, weights
    factors = [0.5] * E
    return (
        mixture.fp8_scalars(*routed, *lists, 0.5, *[factors] * 4, *REST),
        mixture.fp8_dynamic(
            *routed,
            *lists,
            weights[:1, :1].float(),
            *[[weights[:1, 0].float()] * E] * 3,
            False,
            "gelu",
            0,
            E - 1,
        ),
    )


def operands(tokens, seed=0):
    hidden, table, weights, lists = samples(seed, tokens)
    return on_device([hidden, table, weights, *lists[0], *lists[1], *lists[2]])
