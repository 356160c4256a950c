"""Test how tensor parallelism divides operations, and when it adds partial sums."""

import pytest
import torch
from priced_programs import nn, traced

from hpu_magic.estimates.cost.constants import FITTED
from hpu_magic.estimates.cost.hardware import LINK_EFFICIENCY
from hpu_magic.estimates.cost.pricing import price
from hpu_magic.estimates.layout import parse


class RowParallel(nn.Module):
    """Pairs of layers; each card has a part of the sums of the second layer of a pair."""

    def __init__(self, forward, count=2):
        super().__init__()
        self.combined = forward
        self.pairs = nn.ModuleList(
            nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024, bias=False))
            for _ in range(count)
        )
        self.register_buffer("kept", torch.zeros(512, 1024))

    def forward(self, x):
        return self.combined(self, *(pair(x) for pair in self.pairs))


def _kept(model, a):
    model.kept.copy_(a.view_as(model.kept))


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("shape", [(512, 1024), (2, 256, 1024)], ids=["2-D", "3-D"])
@pytest.mark.parametrize(
    ("forward", "count", "reductions"),
    [
        pytest.param(lambda _, a: a, 1, 1, id="result"),
        pytest.param(lambda _, a: a.relu(), 1, 1, id="read"),
        pytest.param(lambda _, a: (a, a.relu()), 1, 1, id="read result"),
        pytest.param(lambda _, a: (a[-1:], [a.view(-1)]), 1, 1, id="views of a result"),
        pytest.param(_kept, 1, 1, id="copied to a buffer"),
        pytest.param(lambda _, a, b: {"a": a, "b": b}, 2, 2, id="two results"),
        pytest.param(lambda _, a, b: a, 2, 1, id="one of them is not used"),
        pytest.param(lambda _, a, b: a + b, 2, 1, id="sum"),
        pytest.param(lambda _, a, b: (a + b).relu(), 2, 1, id="sum that is read"),
        pytest.param(lambda _, a, b: a.add_(b), 2, 1, id="sum in place"),
        pytest.param(lambda _, a, b, c: a + b + c, 3, 1, id="sum of three"),
        pytest.param(lambda _, a, b: (a + b, a), 2, 2, id="sum and operand"),
        pytest.param(lambda _, a, b: (a + b, a.relu()), 2, 2, id="sum and operand that is read"),
    ],
)
def test_tensor_parallel_layers_reduce_each_result_once(mode, shape, forward, count, reductions):
    program = traced(RowParallel(forward, count), *shape)
    whole, parts = (
        price(program, "gaudi2", mode=mode, layout=parse(None, text)) for text in ("", "tp=4")
    )
    wire = 2 * 512 * 1024 * 3 / 4 / (37.5e9 * 3 * LINK_EFFICIENCY)
    reduced = [each.links for each in parts.operations if each.links]
    assert reduced == reductions * [pytest.approx(2 * (wire + FITTED.link_latency))]
    products = [
        (each.matrix, other.matrix)
        for each, other in zip(whole.operations, parts.operations, strict=True)
        if each.matrix
    ]
    assert [each / other for each, other in products] == 2 * count * [pytest.approx(4)]
