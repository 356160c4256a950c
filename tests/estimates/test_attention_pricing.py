"""Test costs of attention."""

import pytest
from priced_programs import PEAK, costs_of, nn, traced

from hpu_magic.estimates.cost.attention import SKIPPED
from hpu_magic.estimates.cost.constants import FITTED
from hpu_magic.estimates.cost.pricing import price
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.layout import parse


class Attention(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x)


def test_indivisible_heads_are_refused():
    program = traced(nn.Sequential(Attention()), 2, 6, 128, 64)
    with pytest.raises(EstimateError, match=r"6 attention heads are not divisible by tp=4"):
        price(program, "gaudi2", layout=parse(None, "tp=4"))


def test_attention_includes_products_and_softmax():
    program = traced(Attention(), 2, 8, 1024, 128)
    (cost,) = costs_of(price(program, "gaudi2"))
    assert cost.matrix == pytest.approx(2 * 2 * 2 * 8 * 1024 * 1024 * 128 / PEAK)
    assert cost.vector > 0


@pytest.mark.parametrize(("train", "expected"), [(False, [3]), (True, [3, 5])])
def test_matmuls_and_softmax_of_attention_are_separate_kernels(train, expected):
    model = nn.Sequential(nn.Linear(128, 128), Attention())
    program = traced(model, 2, 8, 1024, 128, train=train)
    costs = [cost for cost in price(program, "gaudi2").operations if cost.matrix and cost.vector]
    assert [cost.launch / FITTED.node_seconds for cost in costs] == pytest.approx(expected)


class Causal(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


class Fused(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.causal = causal

    def forward(self, x):
        from habana_frameworks.torch.hpex.kernels import FusedSDPA

        return FusedSDPA.apply(x, x, x, None, 0.0, self.causal)


@pytest.mark.parametrize("train", [False, True])
def test_the_vendors_kernel_skips_scores_above_the_diagonal(shell, train):
    whole, causal = (
        [cost for cost in price(program, "gaudi2").operations if cost.matrix and cost.vector]
        for program in (
            traced(nn.Sequential(nn.Linear(128, 128), Fused(each)), 2, 8, 1024, 128, train=train)
            for each in (False, True)
        )
    )
    assert len(whole) == len(causal) == 1 + train
    half = 1 - SKIPPED * (1 - 1025 / 2048)
    for one, other in zip(causal, whole, strict=True):
        assert one.vector / other.vector == pytest.approx(half)
        # The matrix engines compute complete tiles.
        assert half <= one.matrix / other.matrix < 1


def test_a_causal_mask_is_added_to_all_scores():
    plain, causal = (
        costs_of(price(traced(model, 2, 8, 1024, 128), "gaudi2"))[-1]
        for model in (Attention(), Causal())
    )
    assert causal.matrix == plain.matrix
    assert causal.vector > plain.vector
    assert causal.memory > plain.memory
