"""Test FusedSGD: dampening, and rejected options and lists; its steps are in `test_optimizers`."""

import pytest
import torch
from habana_frameworks.torch.hpex import optimizers
from operator_tensors import EAGER, on_device, random_tensors

hpu_ops = torch.ops.hpu


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
