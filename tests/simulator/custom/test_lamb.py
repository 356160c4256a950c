"""Test FusedLamb against its formula in float64: within 1e-4, float64 weights 1e-6."""

import pytest
import torch
from habana_frameworks.torch.hpex import optimizers
from operator_tensors import on_device
from trained_weights import Trained, assert_all_near

hpu_ops = torch.ops.hpu


def lamb_reference(exact, states, clip, t, *, lr, betas, eps, decay, average, use_lamb):
    b1, b2 = betas
    for one, state in zip(exact, states, strict=True):
        grad = one.grad / clip
        state["m"] = b1 * state.get("m", 0) + (1 - b1 if average else 1) * grad
        state["v"] = b2 * state.get("v", 0) + (1 - b2) * grad**2
        step = state["m"] / (1 - b1**t) / ((state["v"] / (1 - b2**t)).sqrt() + eps)
        step = step + decay * one.detach()
        trust = 1.0
        if decay or use_lamb:
            trust = one.detach().norm() / step.norm() if step.norm() > 0 else 1.0
        one.data -= lr * trust * step


@pytest.mark.parametrize(
    ("dtype", "decay", "average", "use_lamb", "largest"),
    [
        (torch.float32, 0.01, True, False, 1.0),
        (torch.float32, 0.0, True, False, 1e9),
        (torch.float32, 0.0, False, True, None),
        (torch.float64, 0.01, True, False, 1.0),
    ],
)
def test_step_is_scaled_by_the_trust_ratio(dtype, decay, average, use_lamb, largest):
    trained = Trained(dtype=dtype)
    options = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}
    fused = optimizers.FusedLamb(
        trained.weights,
        **options,
        weight_decay=decay,
        grad_averaging=average,
        use_lamb=use_lamb,
        max_grad_norm=largest,
    )
    states = [{} for _ in trained.exact]
    for t in range(1, 4):
        trained.new_gradients()
        fused.step()
        norm = torch.cat([each.grad.flatten() for each in trained.exact]).norm().item()
        clip = 1.0 if largest is None else max(1.0, norm / largest)
        rest = {"decay": decay, "average": average, "use_lamb": use_lamb}
        lamb_reference(trained.exact, states, clip, t, **options, **rest)
    assert {weight.dtype for weight in trained.weights} == {dtype}
    assert_all_near(trained.weights, trained.exact, 1e-6 if dtype is torch.float64 else 1e-4)
    fused.zero_grad()
    assert [weight.grad for weight in trained.weights] == [None] * 3


def test_zero_weight_stays_zero():
    weight = torch.zeros(3, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizers.FusedLamb([weight]).step()
    assert weight.cpu().tolist() == [0.0] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_norm_operator_returns_the_divisor_of_the_gradients(dtype):
    grads = [torch.full((2, 2), 3.0).to(dtype), torch.full((4,), 4.0).to(dtype)]  # norm 10
    for largest, expected in ((5.0, 2.0), (20.0, 1.0)):
        actual = hpu_ops.optimizer_lamb_fused_norm(on_device(grads), largest)
        assert (actual.dtype, actual.cpu().tolist()) == (dtype, [expected])


def test_amsgrad_is_rejected():
    with pytest.raises(RuntimeError, match="FusedLamb does not support the AMSGrad variant"):
        optimizers.FusedLamb([torch.ones(1, device="hpu", requires_grad=True)], amsgrad=True)
