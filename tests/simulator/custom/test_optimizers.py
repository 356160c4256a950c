"""What all fused optimizers share, and what each mode has of them."""

import copy
import io

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch import _hpex_C, hpu  # noqa: E402
from habana_frameworks.torch.hpex import optimizers  # noqa: E402
from trained_weights import EAGER, LAZY, Trained, assert_near  # noqa: E402

hpu_ops = torch.ops.hpu


def test_a_step_evaluates_its_closure_with_gradients():
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
        optimizer.step()  # none has a gradient: nothing to do


@LAZY
def test_adagrad_is_that_of_torch():
    trained = Trained()
    options = {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}
    fused = optimizers.FusedAdagrad(trained.weights, **options)
    exact = torch.optim.Adagrad(trained.exact, **options)
    for _ in range(3):
        trained.new_gradients()
        assert fused.step() is None
        exact.step()
    assert_near(trained.weights, trained.exact)


@LAZY
def test_adagrad_begins_with_a_group_that_is_added():
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
    assert_near(trained.weights, trained.exact)


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: optimizers.FusedSGD(weights, 0.1, momentum=0.9),
        pytest.param(lambda weights: optimizers.FusedAdagrad(weights, 0.1), marks=LAZY),
    ],
    ids=["sgd", "adagrad"],
)
def test_a_state_that_was_read_to_the_cpu_goes_on(make):
    trained = Trained()
    saved = make(trained.weights)
    trained.new_gradients()
    saved.step()
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    others = [each.detach().clone().requires_grad_() for each in trained.weights]
    loaded = make(others)
    loaded.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    trained.new_gradients()
    for weight, other in zip(trained.weights, others, strict=True):
        other.grad = weight.grad
    saved.step()
    loaded.step()
    for weight, other in zip(trained.weights, others, strict=True):
        assert torch.equal(weight.cpu(), other.cpu())


@EAGER
def test_eager_mode_refuses_what_only_lazy_mode_has():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    with pytest.raises(RuntimeError) as refused:
        optimizers.FusedAdagrad([weight]).step()
    assert str(refused.value) == (
        "Frontend Op optimizer_adagrad_hpu_wrap not supported with new Eager mode"
    )
    for function in ("optimizer_sgd", "optimizer_sgd_momentum", "fused_ema", "fused_lars"):
        with pytest.raises(RuntimeError, match="not supported with new Eager mode"):
            getattr(_hpex_C, function)()


@LAZY
def test_lazy_mode_has_no_optimizers_of_eager_mode():
    names = "optimizer_sgd", "optimizer_sgd_momentum", "optimizer_ema", "optimizer_lars"
    assert [name for name in names if hasattr(hpu_ops, name)] == []


def test_the_adams_of_the_package_are_those_of_torch():
    for name in ("Adam", "AdamW"):
        trained = Trained()
        ours = getattr(optimizers, name)(trained.weights, lr=0.1)
        exact = getattr(torch.optim, name)(trained.exact, lr=0.1)
        for _ in range(2):
            trained.new_gradients()
            ours.step()
            exact.step()
        assert_near(trained.weights, trained.exact)
        assert isinstance(ours, getattr(torch.optim, name))


@LAZY
def test_a_step_executes_what_was_recorded():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    metric = hpu.metrics.metric_global("graph_compilation")
    before = copy.deepcopy(metric.stats())
    optimizers.FusedSGD([weight], 0.1).step()
    assert metric.stats() != before
