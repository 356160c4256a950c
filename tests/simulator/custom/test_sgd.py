"""FusedSGD against torch.optim.SGD in float64: float32 within 1e-5, bfloat16 within 2e-2."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.hpex import optimizers  # noqa: E402
from trained_weights import EAGER, Trained, assert_near, on_device, tensors  # noqa: E402

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
def test_sgd_is_that_of_torch(options, dtype):
    trained = Trained(dtype=dtype)
    fused = optimizers.FusedSGD(trained.weights, 0.1, **options)
    exact = torch.optim.SGD(trained.exact, 0.1, **options)
    for _ in range(3):
        trained.new_gradients()
        fused.step()
        exact.step()
    assert_near(trained.weights, trained.exact)


def test_sgds_dampening_acts_on_the_first_step_too():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizers.FusedSGD([weight], 0.1, momentum=0.5, dampening=0.5).step()
    torch.testing.assert_close(weight.detach().cpu(), torch.full((2,), 1 - 0.1 * 0.5))


@pytest.mark.parametrize(
    ("options", "said"),
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
def test_sgd_refuses_its_parameters_as_torch_does(options, said):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        optimizers.FusedSGD([torch.ones(1, device="hpu", requires_grad=True)], **options)
    assert str(refused.value) == said


@EAGER
def test_the_operators_of_sgd_refuse_lists_in_their_words():
    one, number = on_device(tensors((2,))), torch.ones(1, device="hpu")
    for arguments, said in (
        (([], []), "optimizer_sgd : can not process empty weight vector"),
        ((one * 2, one), "Both vector inputs must have the same number of elements"),
    ):
        with pytest.raises(RuntimeError, match=said):
            hpu_ops.optimizer_sgd(*arguments, number, 0.0, 0.0, 0.0, False)
    for arguments, said in (
        (([], [], []), "optimizer_sgd_momentum : can not process empty weight vector"),
        ((one, one, one * 2), "All vector inputs must have the same number of elements"),
    ):
        with pytest.raises(RuntimeError, match=said):
            hpu_ops.optimizer_sgd_momentum(*arguments, number, number, number, 0.0, 0.0, False)
