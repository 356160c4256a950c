"""Test dry runs of programs that route tokens to experts."""

import pytest

from hpu_magic.dry_runs.request import Request
from hpu_magic.errors import HPUError

MODES = ("eager", "lazy", "compiled")
ROUTES = """
import sys
import torch

def routed(scores):
    weights, experts = scores.softmax(-1).topk(2)
    counts = experts.flatten().bincount(minlength=8)
    one = torch.nn.functional.one_hot(experts, 8)[..., 1].nonzero()
    return weights.sum(), experts, counts, one

if sys.argv[1] == "compiled":
    routed = torch.compile(routed, backend="hpu_backend")
scores = torch.randn(64, 8, device="hpu", requires_grad=True)
total, experts, counts, one = routed(scores)
total.backward()
print(counts.tolist())
print((experts[:, 0] == experts[:, 1]).any().item())
print(one.shape)
"""
EXCHANGE = """
import sys
import torch
import torch.distributed as dist
import habana_frameworks.torch

dist.init_process_group("hccl")
ranks, experts, width = dist.get_world_size(), 16, 32
tokens = torch.randn(128, width, device="hpu")
def route(scores):
    chosen = scores.topk(2)[1].flatten()
    return chosen, chosen.argsort()
if sys.argv[1] == "compiled":
    route = torch.compile(route, backend="hpu_backend", fullgraph=True)
chosen, order = route(torch.randn(128, experts, device="hpu"))
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


@pytest.fixture(params=MODES)
def mode(request, monkeypatch):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", str(int(request.param == "lazy")))
    return request.param


def test_topk_selects_all_experts_equally_often(dry, mode):
    result, output = dry(ROUTES, mode)
    assert output.splitlines() == [str([16] * 8), "False", "torch.Size([16, 2])"]
    [line] = result.assumed_indices
    where = 5 if mode == "compiled" else 6  # the line of the compiled function
    assert (line.place, line.count) == (f"train.py:{where}", 1)
    assert "topk is assumed to select all indices, such as experts, equally often." in str(result)
    assert "operands of sort" not in str(result)


def test_split_sizes_of_an_exchange_are_those_of_balanced_experts(dry, mode):
    _, output = dry(EXCHANGE, mode, cards=8)
    assert output.splitlines() == ["[128, 128] 256", "256"]


def test_rank_0_is_the_busiest_one(dry, mode):
    result, output = dry(EXCHANGE, mode, cards=8, imbalance=1.5)
    assert output.splitlines() == ["[192, 192] 256", "256"]
    assert "those of rank 0 1.5 times as often as the mean" in str(result)
    assert result.warnings() == []


@pytest.mark.parametrize("mode", ["capture_scalar_outputs", "capture_dynamic_output_shape_ops"])
def test_sizes_in_a_compiled_graph_are_those_of_balanced_experts(dry, mode):
    _, output = dry(
        """
        import sys
        import torch
        setattr(torch._dynamo.config, sys.argv[1], True)

        @torch.compile(backend="hpu_backend", fullgraph=True)
        def own(tokens, scores):
            chosen = scores.topk(2)[1].flatten()
            if sys.argv[1] == "capture_scalar_outputs":
                count = (chosen == 1).sum().item()
                return tokens.new_zeros(count, 4) + 1
            return tokens[torch.where(chosen == 1)[0] // 2] + 1

        print(own(torch.ones(64, 4, device="hpu"), torch.randn(64, 8, device="hpu")).shape)
        """,
        mode,
    )
    assert output == "torch.Size([16, 4])\n"


def test_indices_of_known_scores_are_computed(dry, mode):
    result, output = dry(
        """
        import torch
        scores = torch.arange(6.0).to("hpu").view(2, 3)
        print(scores.topk(1)[1].tolist())
        """
    )
    assert output == "[[2], [2]]\n"
    assert result.stand_ins == []


def test_exchanged_values_are_assumed_if_ranks_would_not_send_the_same(dry):
    result, output = dry(
        """
        import torch
        import torch.distributed as dist
        dist.init_process_group("hccl")
        sent = torch.arange(1, 3).to("hpu")
        received = torch.full((3,), 7, device="hpu")
        dist.all_to_all_single(received, sent, [1, 2], [1, 1])
        print(received.tolist())
        """,
        cards=2,
    )
    assert output == "[0, 0, 0]\n"
    assert len(result.stand_ins) == 1


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
    assert "imbalance=1.5 had no effect: it applies to topk" in warning
