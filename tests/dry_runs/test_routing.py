"""Test dry runs of programs that route tokens to experts."""

import pytest

from hpu_magic.dry_runs.request import Request
from hpu_magic.errors import HPUError

ROUTES = """
import torch
scores = torch.randn(64, 8, device="hpu", requires_grad=True)
weights, experts = scores.softmax(-1).topk(2)
weights.sum().backward()
print(experts.flatten().bincount(minlength=8).tolist())
print((experts[:, 0] == experts[:, 1]).any().item())
print(torch.nn.functional.one_hot(experts, 8)[..., 1].nonzero().shape)
"""
EXCHANGE = """
import sys
import torch
import torch.distributed as dist
import habana_frameworks.torch

dist.init_process_group("hccl")
ranks, experts, width = dist.get_world_size(), 16, 32
tokens = torch.randn(128, width, device="hpu")
chosen = torch.randn(128, experts, device="hpu").topk(2)[1].flatten()
order = chosen.argsort()
counts = chosen.bincount(minlength=experts)
received = torch.empty_like(counts)
dist.all_to_all_single(received, counts)
to = counts.view(ranks, -1).sum(1).tolist()
here = received.view(ranks, -1).sum(1).tolist()
ids = torch.empty(sum(here), dtype=torch.int64, device="hpu")
dist.all_to_all_single(ids, chosen[order], here, to)
part = torch.empty(sum(here), width, device="hpu")
dist.all_to_all_single(part, tokens[order // 2], here, to)
print([part[ids == each].shape[0] for each in range(experts // ranks)], sum(to))
back = torch.empty(sum(to), width, device="hpu")
dist.all_to_all_single(back, part, to, here)
print(back.shape[0])
"""


def test_topk_selects_all_experts_equally_often(dry):
    result, output = dry(ROUTES)
    assert output.splitlines() == [str([16] * 8), "False", "torch.Size([16, 2])"]
    [line] = result.routes
    assert (line.place, line.count) == ("train.py:4", 1)
    assert "topk is assumed to select all indices, such as experts, equally often." in str(result)


def test_split_sizes_of_an_exchange_are_those_of_balanced_experts(dry):
    _, output = dry(EXCHANGE, cards=8)
    assert output.splitlines() == ["[128, 128] 256", "256"]


def test_rank_0_is_the_busiest_one(dry):
    result, output = dry(EXCHANGE, cards=8, imbalance=1.5)
    assert output.splitlines() == ["[192, 192] 256", "256"]
    assert "those of rank 0 1.5 times as often as the mean" in str(result)
    assert result.warnings() == []


def test_assumed_routes_take_no_time(dry):
    def seconds(select):
        code = f"""
        import torch
        scores = torch.randn(64, 8, device="hpu")
        print({select}(scores, 2)[1].sum().item())
        """
        result, output = dry(code)
        assert result.status == 0
        return result.time.seconds, output

    (assumed, total), (plain, unknown) = map(seconds, ("torch.topk", "torch.ops.aten.topk"))
    assert (total, unknown) == ("448\n", "0\n")
    assert assumed == plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"imbalance": 0.5}, "imbalance=0.5 is not a ratio of tokens: use 1.0 if"),
        ({"imbalance": float("nan")}, "imbalance=nan is not a ratio"),
        ({"imbalance": 1.5}, "imbalance=1.5 is impossible with cards=1, .*use more cards"),
        ({"imbalance": 9, "cards": 8}, "imbalance=9 is impossible with cards=8"),
    ],
)
def test_impossible_imbalances_are_refused(options, message):
    with pytest.raises(HPUError, match=message):
        Request(code="pass", **options).check()


def test_imbalance_without_a_router_is_reported(dry):
    result, _ = dry("import torch\ntorch.ones(2, device='hpu')", cards=2, imbalance=1.5)
    [warning] = result.warnings()
    assert "imbalance=1.5 had no effect: it applies only in eager mode" in warning
