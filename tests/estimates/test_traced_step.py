"""Test several estimates from one trace, and estimates of single collectives."""

import pytest
import torch

import hpu_magic
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing import step

nn = torch.nn

X = torch.empty(32, 256, device="meta")


@pytest.fixture
def traces(monkeypatch):
    """The steps that have been traced."""
    traced = []
    original = step._Step.run

    def run(self, call):
        traced.append(self)
        original(self, call)

    monkeypatch.setattr(step._Step, "run", run)
    return traced


def model():
    return nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).bfloat16()


@pytest.mark.parametrize(
    "options",
    [
        {"card": "gaudi3"},
        {"cards": 8, "parallel": "zero3"},
        {"cards": 2, "parallel": "tp=2", "mode": "graphs"},
        {"dtype": "fp8"},
    ],
)
def test_one_trace_is_estimated_for_many_cards_and_precisions(traces, options):
    traced = hpu_magic.trace(model(), X)
    assert len(traces) == 1
    found = traced.estimate(**options)
    assert len(traces) == 1
    assert repr(found) == repr(hpu_magic.estimate(model(), X, **options))


def test_other_tensors_are_traced_once(traces):
    traced = hpu_magic.trace(model(), X, train=False)
    for _ in range(2):
        found = [traced.estimate(dtype="fp32"), traced.estimate(batch=64)]
    assert len(traces) == 3
    assert [each.batch for each in found] == [32, 64]
    assert found[0].memory["weights"] == 2 * found[1].memory["weights"]


def test_trace_is_shown_in_one_line():
    traced = hpu_magic.trace(model(), X, train=False)
    assert repr(traced) == "Trace of a forward pass of Sequential; call estimate(card=...)."


def test_collective_takes_as_long_as_measured():
    # 147.6 GB/s were measured for 32 MiB on eight Gaudi2 cards.
    found = hpu_magic.estimate_collective("all_reduce", 2**30)
    low, high = found.band
    assert low < 147.5e9 / found.bytes_per_second < high
    assert "rate" in repr(found)
    half = hpu_magic.estimate_collective("reduce_scatter", 2**30)
    assert found.seconds == pytest.approx(2 * half.seconds)


def test_collectives_between_machines_are_slower():
    for operation in ("all_reduce", "all_gather", "all_to_all"):
        one, two = (
            hpu_magic.estimate_collective(operation, 2**28, cards=cards) for cards in (8, 16)
        )
        assert two.seconds > one.seconds
        assert two.band[1] > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all_reduse", 8), "operation='all_reduse' is not a valid choice: did you mean"),
        (("all_reduce", 0), "size=0 is not a number of bytes: use 1 to"),
    ],
)
def test_invalid_collectives_are_refused(arguments, message):
    with pytest.raises(EstimateError, match=message):
        hpu_magic.estimate_collective(*arguments)
    with pytest.raises(EstimateError, match="cards=1 is not a number of cards"):
        hpu_magic.estimate_collective("all_reduce", 8, cards=1)


def test_one_trace_is_estimated_with_several_deepspeed_configurations(traces):
    traced = hpu_magic.trace(model(), X, optimizer="fusedadamw")
    for stage in (1, 3):
        configuration = {"bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
        found = traced.estimate(cards=2, deepspeed=configuration)
        assert len(traces) == 1
        expected = hpu_magic.estimate(
            model(), X, cards=2, optimizer="fusedadamw", deepspeed=configuration
        )
        del traces[1:]
        assert repr(found) == repr(expected)
        assert found.memory == expected.memory


def test_optimizer_of_deepspeed_replaces_the_traced_one(traces):
    traced = hpu_magic.trace(model(), X, optimizer="sgd")
    configuration = {"bf16": {"enabled": True}, "optimizer": {"type": "AdamW"}}
    for _ in range(2):
        found = traced.estimate(cards=2, deepspeed=configuration)
    assert len(traces) == 2
    assert found.memory["optimizer"] > 0
    assert "optimizer" not in traced.estimate().memory


def test_trace_of_a_compiled_model_estimates_compiled_code():
    compiled = torch.compile(model())
    traced = hpu_magic.trace(compiled, X, train=False)
    assert repr(traced.estimate()) == repr(hpu_magic.estimate(compiled, X, train=False))


def test_only_modules_are_traced():
    with pytest.raises(EstimateError, match=r"The model is a list; pass a torch.nn.Module."):
        hpu_magic.trace([1], X)
