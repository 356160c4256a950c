"""Test FusedLars and its momentum optimizer against float64 formulas: within 1e-5."""

import copy
import pickle

import pytest
import torch
from habana_frameworks.torch.hpex import optimizers
from in_modes import run
from operator_tensors import EAGER, on_device, random_tensors
from trained_weights import Trained, assert_all_near

hpu_ops = torch.ops.hpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rate_and_trust_ratio_are_applied_to_the_gradients(dtype):
    trained = Trained((3, 4), (5,), dtype=dtype)
    inner = torch.optim.SGD(trained.weights, lr=0.5, weight_decay=0.1)
    seen = []
    inner.step = lambda: seen.append([group["weight_decay"] for group in inner.param_groups])
    lars = optimizers.FusedLars(inner, [1, 0], eeta=0.01, eps=1e-3)
    trained.new_gradients()
    lars.step()
    weight, other = trained.exact
    norms = weight.norm().item(), weight.grad.norm().item()
    trust = 0.01 * norms[0] / (norms[1] + 0.1 * norms[0] + 1e-3)
    expected = [(weight.grad + 0.1 * weight) * 0.5 * trust, other.grad * 0.5]
    assert_all_near([each.grad for each in trained.weights], expected, 1e-5)
    assert seen == [[0]]
    assert inner.param_groups[0]["weight_decay"] == 0.1
    lars.zero_grad()
    assert trained.weights[0].grad is None


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda lars: pickle.loads(pickle.dumps(lars))], ids=["copy", "pickle"]
)
def test_copied_optimizer_updates_its_own_weights(copied):
    trained = Trained((3, 4), (5,))
    inner = optimizers.FusedResourceApplyMomentum(trained.weights, 0.5, 0.9, weight_decay=0.1)
    lars = optimizers.FusedLars(inner, [1, 0], eeta=0.01, eps=1e-3)
    trained.new_gradients()
    lars.step()
    other = copied(lars)
    weights = other.param_groups[0]["params"]
    assert other.param_groups is other.optim.param_groups
    assert other.state is other.optim.state
    assert (other.skip_mask, other.eeta, other.eps) == ([1, 0], 0.01, 1e-3)
    trained.new_gradients()
    for weight, one in zip(trained.weights, weights, strict=True):
        one.grad = weight.grad.clone()
    before = [each.detach().cpu() for each in trained.weights]
    other.step()
    assert all(map(torch.equal, before, [each.detach().cpu() for each in trained.weights]))
    lars.step()
    for weight, one in zip(trained.weights, weights, strict=True):
        assert torch.equal(weight.detach().cpu(), one.detach().cpu())


def test_step_hooks_are_called():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    inner = optimizers.FusedResourceApplyMomentum([weight], 0.25)
    lars = optimizers.FusedLars(inner, [0])
    seen = []
    lars.register_step_pre_hook(lambda *_: seen.append(weight.detach().cpu().tolist()))
    lars.register_step_post_hook(lambda *_: seen.append(weight.detach().cpu().tolist()))
    lars.step()
    assert seen == [[1.0, 1.0], [1.25, 1.25]]


def test_zero_weight_uses_the_plain_learning_rate():
    weight = torch.zeros(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    inner = optimizers.FusedResourceApplyMomentum([weight], 0.25, momentum=0.5)
    optimizers.FusedLars(inner, [1]).step()
    assert weight.cpu().tolist() == [0.25, 0.25]


@EAGER
def test_operator_rejects_lists_of_different_lengths():
    one, number = on_device(random_tensors((2,))), torch.ones(1, device="hpu")
    with pytest.raises(RuntimeError, match="params, grads and skip_masks vector inputs must have"):
        hpu_ops.optimizer_lars(one, one, [1, 1], 0.1, 0.0, 0.0, number)


def test_momentum_follows_the_documented_signs():
    trained = Trained()
    optimizer = optimizers.FusedResourceApplyMomentum(trained.weights, 0.1, momentum=0.9)
    buffers = None
    for _ in range(3):
        trained.new_gradients()
        optimizer.step()
        grads = [each.grad for each in trained.exact]
        if buffers is None:
            buffers = grads
        else:
            pairs = zip(buffers, grads, strict=True)
            buffers = [0.9 * buffer - grad for buffer, grad in pairs]
        for one, buffer in zip(trained.exact, buffers, strict=True):
            one.data += buffer
    assert_all_near(trained.weights, trained.exact)
    one = trained.weights[0].detach()
    with pytest.raises(RuntimeError, match="params_momentum_buf_list must have twice as many"):
        run(hpu_ops.optimizer_resource_apply_momentum, [one], [one], 0.9)
