"""Test mixtures of experts against float64: float32 within 1e-4, reduced types 3e-2."""

import pytest
import torch
from in_modes import run
from operator_tensors import EAGER, assert_matches, on_device, rejects

mixture = torch.ops.hpu.mixture_of_experts
T, H, F, E, K = 6, 8, 5, 4, 2
ACTIVATIONS = {
    "gelu": torch.nn.functional.gelu,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
}


def samples(dtype=torch.float32, seed=0, tokens=T):
    made = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, H, generator=made).to(dtype)
    table = torch.randint(0, E, (tokens, K), generator=made)
    weights = torch.rand(tokens, K, generator=made).to(dtype)
    shapes = [(H, F), (H, F), (F, H)]
    lists = [[torch.randn(shape, generator=made).to(dtype) for _ in range(E)] for shape in shapes]
    return hidden, table, weights, lists


def reference(hidden, table, weights, lists, act, first=0):
    out = torch.zeros(hidden.shape, dtype=torch.float64)
    for t, row in enumerate(table.tolist()):
        for k, expert in enumerate(row):
            if first <= expert < first + len(lists[0]):
                gate, up, down = (each[expert - first].double() for each in lists)
                x = hidden[t].double()
                out[t] += weights[t, k].double() * ((act(x @ gate) * (x @ up)) @ down)
    return out


def assert_near(actual, expected, dtype):
    magnitude = expected.abs().max().item()
    assert_matches(actual / magnitude, expected / magnitude, dtype, exact=1e-4, reduced=3e-2)


def fused(lists):
    return [torch.cat(pair, 1) for pair in zip(*lists[:2], strict=True)]


def transposed(weights):
    return [each.t().contiguous() for each in weights]


@pytest.mark.parametrize("form", ["separate", "fused", "permuted", "permuted and fused"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)],
    ids=str,
)
def test_mixture_of_training_size_is_rounded_once(dtype, tolerance, activation, form):
    made = torch.Generator().manual_seed(0)
    tokens, hidden, inner, experts = 64, 64, 96, 8
    x = torch.randn(tokens, hidden, generator=made).to(dtype)
    # Small positive weights avoid cancellation in the sums.
    lists = [
        [(torch.rand(shape, generator=made) / 8).to(dtype) for _ in range(experts)]
        for shape in [(hidden, inner), (hidden, inner), (inner, hidden)]
    ]
    weights, table = torch.rand(tokens, experts, generator=made).softmax(-1).topk(2)
    weights = weights.to(dtype)
    expected = reference(x, table, weights, lists, ACTIVATIONS[activation])
    weight_lists = [fused(lists), lists[2]] if "fused" in form else lists
    weight_lists = (
        [transposed(each) for each in weight_lists] if "permuted" in form else weight_lists
    )
    overload = mixture.fused_weights if "fused" in form else mixture.default
    actual = overload(
        *on_device((x, table, weights)),
        *map(on_device, weight_lists),
        *("permuted" in form, activation, 0, experts - 1),
    )
    assert (actual.dtype, actual.device.type) == (dtype, "hpu")
    torch.testing.assert_close(
        actual.cpu().double(), expected, rtol=tolerance, atol=1e-6 * expected.abs().max()
    )


GELU = """
import torch
x = torch.full((1, 1), -2.0)
one = torch.ones(1, 1)
actual = torch.ops.hpu.mixture_of_experts(
    x.to("hpu"), torch.zeros(1, 1, dtype=torch.long, device="hpu"), one.to("hpu"),
    *([one.to("hpu")] for _ in range(3)), False, "gelu", 0, 0,
)
gelu = torch.nn.functional.gelu
print([torch.allclose(actual.cpu(), -2 * gelu(x, approximate=form), rtol=1e-5, atol=0)
    for form in ("none", "tanh")])
"""


@pytest.mark.once
@pytest.mark.parametrize("lazy", ["0", "1"])
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, "[True, False]\n"),
        ({"PT_HPU_FORCE_TANH_FOR_GELU": "0"}, "[True, False]\n"),
        ({"PT_HPU_FORCE_TANH_FOR_GELU": "1"}, "[False, True]\n"),
    ],
    ids=["unset", "0", "1"],
)
def test_gelu_uses_tanh_only_if_the_flag_is_set(forked_script, lazy, flags, expected):
    assert forked_script(GELU, simulated=True, PT_HPU_LAZY_MODE=lazy, **flags) == expected


def test_experts_of_other_cards_contribute_nothing():
    hidden, table, weights, lists = samples()
    held = [each[1:3] for each in lists]
    expected = reference(hidden, table, weights, held, torch.relu, first=1)
    actual = mixture(
        *on_device((hidden, table, weights)), *map(on_device, held), False, "relu", 1, 2
    )
    assert_near(actual, expected, torch.float32)


def test_repeated_expert_counts_twice():
    hidden, _, weights, lists = samples()
    table = torch.full((T, K), 2)
    expected = reference(hidden, table, weights, lists, torch.relu)
    actual = mixture(
        *on_device((hidden, table, weights)), *map(on_device, lists), False, "relu", 0, E - 1
    )
    assert_near(actual, expected, torch.float32)


@EAGER
def test_measurement_returns_the_largest_inner_value_per_expert():
    hidden, table, weights, lists = samples()
    routed, rest = on_device((hidden, table, weights)), (False, "silu", 0, E - 1, True)
    x = hidden.double()
    largest = torch.stack(
        [
            (torch.nn.functional.silu(x @ gate.double()) * (x @ up.double())).max()
            for gate, up in zip(*lists[:2], strict=True)
        ]
    )
    for out, amax in (
        mixture.fp8_measurement(*routed, *map(on_device, lists), *rest),
        mixture.fp8_measurement_fused_weights(
            *routed, *map(on_device, (fused(lists), lists[2])), *rest
        ),
    ):
        assert_near(
            out, reference(*(hidden, table, weights, lists), ACTIVATIONS["silu"]), out.dtype
        )
        assert_near(amax, largest, torch.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "tanh"}, 'Activation "tanh" not found among MoeActivationMode_t enum'),
        ({"last": E}, "weights of experts 0 to 4, 5 tensors in each list, but got a list of 4."),
        ({"weights": torch.ones(T, K).half()}, "of more than 8 bits, but got Float and Half."),
        ({"table": torch.zeros(T + 1, K).long()}, "each of 6 tokens, but got shapes [7, 2]"),
        ({"table": torch.zeros(T, K)}, "routing table must contain integers, but got Float."),
    ],
    ids=["activation", "experts", "router", "table", "numbers"],
)
def test_invalid_mixture_is_rejected(change, message):
    hidden, table, weights, lists = samples()
    routed = hidden, change.get("table", table), change.get("weights", weights)
    rest = False, change.get("activation", "silu"), 0, change.get("last", E - 1)
    with rejects(message):
        run(mixture, *on_device(routed), *map(on_device, lists), *rest)


def operands(tokens, seed=0):
    hidden, table, weights, lists = samples(torch.bfloat16, seed, tokens)
    return on_device([hidden, table, weights, *lists[0], *lists[1], *lists[2]])


def everything(hidden, table, weights, *experts):
    lists = experts[:E], experts[E : 2 * E], experts[2 * E :]
    return mixture(hidden, table, weights, *map(list, lists), False, "silu", 0, E - 1)
