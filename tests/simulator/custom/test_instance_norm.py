"""Test the vendor's instance norm against float64: float32 within 1e-5, bfloat16 2e-2."""

import pytest
import torch
from in_modes import run
from operator_tensors import (
    EAGER,
    assert_matches,
    on_device,
    random_tensor,
    random_tensors,
    rejects,
)

hpu_ops = torch.ops.hpu
pytestmark = EAGER
N, C, EPS = 2, 3, 1e-3


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("places", [(7,), (4, 5), (2, 3, 4)], ids=str)
def test_result_and_gradients_match_pytorch(places, dtype, affine):
    x, grad = (
        random_tensor(N, C, *places, dtype=dtype) * 2 + 1,
        random_tensor(N, C, *places, dtype=dtype, seed=1),
    )
    gamma, beta = (random_tensor(C, seed=2), random_tensor(C, seed=3)) if affine else (None, None)
    moved = on_device((gamma, beta))
    out, mean, istd = hpu_ops.instance_norm(x.to("hpu"), *moved, EPS)
    leaves = [each if each is None else each.double().requires_grad_() for each in (x, gamma, beta)]
    exact = torch.nn.functional.instance_norm(leaves[0], None, None, *leaves[1:], eps=EPS)
    exact.backward(grad.double())
    assert_matches(out, exact.detach(), dtype)
    over = x.double().flatten(2)
    assert_matches(mean, over.mean(-1), torch.float32)
    assert_matches(istd, (over.var(-1, unbiased=False) + EPS).rsqrt(), torch.float32)
    of_x, of_beta, of_gamma = hpu_ops.instance_norm_backward(
        x.to("hpu"), grad.to("hpu"), mean, istd, moved[0]
    )
    assert_matches(of_x, leaves[0].grad, torch.float32)
    if affine:
        assert_matches(of_gamma, leaves[1].grad, torch.float32)
        assert_matches(of_beta, leaves[2].grad, torch.float32)


@pytest.mark.parametrize(
    ("shape", "gamma", "message"),
    [
        ((2, 3), None, "floating-point numbers of shape [N, C, ...], but got Float of [2, 3]."),
        (
            (2, 3, 4),
            (2,),
            "weight must have one element for each of 3 channels, but got shape [2].",
        ),
    ],
    ids=["2D", "weight"],
)
def test_invalid_norm_is_rejected(shape, gamma, message):
    weight = gamma and torch.ones(gamma, device="hpu")
    with rejects(message):
        run(hpu_ops.instance_norm, torch.ones(shape, device="hpu"), weight, None, EPS)


def everything(x, gamma, beta):
    out, mean, istd = hpu_ops.instance_norm(x, gamma, beta, EPS)
    return (out, mean, istd, *hpu_ops.instance_norm_backward(x, out * 2, mean, istd, gamma))


def operands(rows, seed=0):
    return on_device(random_tensors((rows, C, 6), (C,), (C,), seed=seed))
