"""FusedSGD, compared with torch.optim.SGD in float64: float32 within 1e-5, bfloat16 2e-2."""

import pytest
import torch
from habana_frameworks.torch.hpex import optimizers
from operator_tensors import EAGER, on_device, random_tensors
from trained_weights import Trained, assert_all_near

hpu_ops = torch.ops.hpu


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sgd_matches_torch(options, dtype):
    trained = Trained(dtype=dtype)
    fused = optimizers.FusedSGD(trained.weights, 0.1, **options)
    exact = torch.optim.SGD(trained.exact, 0.1, **options)
    for _ in range(3):
        trained.new_gradients()
        fused.step()
        exact.step()
    assert_all_near(trained.weights, trained.exact)


def test_dampening_applies_to_the_first_step():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizers.FusedSGD([weight], 0.1, momentum=0.5, dampening=0.5).step()
    torch.testing.assert_close(weight.detach().cpu(), torch.full((2,), 1 - 0.1 * 0.5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1}, "Invalid learning rate: -1"),
        ({"lr": 1, "momentum": -1}, "Invalid momentum value: -1"),
        ({"lr": 1, "weight_decay": -1}, "Invalid weight_decay value: -1"),
        (
            {"lr": 1, "nesterov": True},
            "Nesterov momentum requires a momentum and zero dampening",
        ),
    ],
)
def test_invalid_options_are_rejected_like_in_torch(options, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        optimizers.FusedSGD([torch.ones(1, device="hpu", requires_grad=True)], **options)
    assert str(error.value) == message


@EAGER
def test_operators_reject_invalid_lists_with_the_vendors_message():
    one, number = on_device(random_tensors((2,))), torch.ones(1, device="hpu")
    for arguments, message in (
        (([], []), "optimizer_sgd : can not process empty weight vector"),
        ((one * 2, one), "Both vector inputs must have the same number of elements"),
    ):
        with pytest.raises(RuntimeError, match=message):
            hpu_ops.optimizer_sgd(*arguments, number, 0.0, 0.0, 0.0, False)
    for arguments, message in (
        (([], [], []), "optimizer_sgd_momentum : can not process empty weight vector"),
        ((one, one, one * 2), "All vector inputs must have the same number of elements"),
    ):
        with pytest.raises(RuntimeError, match=message):
            hpu_ops.optimizer_sgd_momentum(*arguments, number, number, number, 0.0, 0.0, False)
