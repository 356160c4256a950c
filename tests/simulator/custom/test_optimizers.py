"""Test common behavior of the fused optimizers, and their availability in each mode.

Steps are compared with torch's in float64: float32 within 1e-5, bfloat16 2e-2.
"""

import copy
import io
from functools import partial

import pytest
import torch
from habana_frameworks.torch import _hpex_C, hpu
from habana_frameworks.torch.hpex import optimizers
from operator_tensors import EAGER, LAZY
from trained_weights import Trained, assert_all_near

hpu_ops = torch.ops.hpu


def test_step_evaluates_its_closure_with_gradients():
    weight = torch.tensor([2.0]).to("hpu").requires_grad_()
    for optimizer in (
        optimizers.FusedAdamW([weight]),
        optimizers.FusedSGD([weight], 0.1),
        optimizers.FusedLamb([weight]),
        optimizers.FusedResourceApplyMomentum([weight], 0.1),
    ):
        weight.grad = None

        def closure():
            loss = (weight * weight).sum()
            loss.backward()
            return loss

        before = weight.item()
        assert optimizer.step(closure).item() == pytest.approx(before**2)
        assert weight.item() != before
        weight.grad = None
        optimizer.step()  # without gradients, nothing changes


ADAGRAD = {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}


@pytest.mark.parametrize(
    ("ours", "name", "options"),
    [
        (optimizers.FusedSGD, "SGD", {}),
        (optimizers.FusedSGD, "SGD", {"weight_decay": 0.1}),
        (optimizers.FusedSGD, "SGD", {"momentum": 0.9}),
        (
            *(optimizers.FusedSGD, "SGD"),
            {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
        ),
        pytest.param(optimizers.FusedAdagrad, "Adagrad", ADAGRAD, marks=LAZY),
        (optimizers.Adam, "Adam", {}),
        (optimizers.AdamW, "AdamW", {}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_optimizer_matches_torch(ours, name, options, dtype):
    trained = Trained(dtype=dtype)
    fused = ours(trained.weights, lr=0.1, **options)
    exact = getattr(torch.optim, name)(trained.exact, lr=0.1, **options)
    for _ in range(3):
        trained.new_gradients()
        assert fused.step() is None
        exact.step()
    assert_all_near(trained.weights, trained.exact)


@LAZY
def test_adagrad_supports_an_added_group():
    trained = Trained((3,), (2, 4))
    options = {"lr": 0.1, "initial_accumulator_value": 0.5}
    fused = optimizers.FusedAdagrad(trained.weights[:1], **options)
    exact = torch.optim.Adagrad(trained.exact[:1], **options)
    for each, weights in ((fused, trained.weights), (exact, trained.exact)):
        each.add_param_group({"params": weights[1:], "lr": 0.3})
    for _ in range(2):
        trained.new_gradients()
        fused.step()
        exact.step()
    assert_all_near(trained.weights, trained.exact)


MOMENTS = [
    *(torch.float8_e4m3fn, torch.bfloat16, torch.float32),
    (torch.float8_e5m2, torch.float32),
]


@pytest.mark.parametrize(
    "make",
    [
        partial(optimizers.FusedSGD, momentum=0.9),
        pytest.param(optimizers.FusedAdagrad, marks=LAZY),
        *(partial(optimizers.FusedAdamW, moments_dtype=each) for each in MOMENTS),
    ],
    ids=["sgd", "adagrad", *map(str, MOMENTS)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_training_continues_from_a_state_loaded_on_the_cpu(make, dtype):
    trained = Trained((3, 4), (5,), dtype=dtype)
    saved = make(trained.weights, lr=0.01)
    for _ in range(3):
        trained.new_gradients()
        saved.step()
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    others = [each.detach().clone().requires_grad_() for each in trained.weights]
    loaded = make(others, lr=0.5)
    loaded.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    trained.new_gradients()
    for weight, other in zip(trained.weights, others, strict=True):
        state, its = saved.state[weight], loaded.state[other]
        assert state.keys() == its.keys()
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                assert (value.dtype, value.device) == (its[name].dtype, its[name].device)
                assert torch.equal(value.float().cpu(), its[name].float().cpu())
        other.grad = weight.grad
    for each in (saved, loaded):
        hpu.random.manual_seed_all(0)  # for stochastic rounding
        each.step()
    for weight, other in zip(trained.weights, others, strict=True):
        assert torch.equal(weight.cpu(), other.cpu())


@EAGER
def test_optimizers_of_lazy_mode_are_rejected_in_eager_mode():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    with pytest.raises(RuntimeError) as error:
        optimizers.FusedAdagrad([weight]).step()
    assert str(error.value) == (
        "Frontend Op optimizer_adagrad_hpu_wrap not supported with new Eager mode"
    )
    for function in ("optimizer_sgd", "optimizer_sgd_momentum", "fused_ema", "fused_lars"):
        with pytest.raises(RuntimeError, match="not supported with new Eager mode"):
            getattr(_hpex_C, function)()


@LAZY
def test_operators_of_eager_mode_are_absent_in_lazy_mode():
    names = "optimizer_sgd", "optimizer_sgd_momentum", "optimizer_ema", "optimizer_lars"
    assert [name for name in names if hasattr(hpu_ops, name)] == []


def test_adam_classes_are_those_of_torch():
    for name in ("Adam", "AdamW"):
        assert issubclass(getattr(optimizers, name), getattr(torch.optim, name))


@LAZY
def test_step_executes_recorded_operations():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    metric = hpu.metrics.metric_global("graph_compilation")
    before = copy.deepcopy(metric.stats())
    optimizers.FusedSGD([weight], 0.1).step()
    assert metric.stats() != before
