"""The vendor's instance norm against float64: float32 within 1e-5, bfloat16 within 2e-2."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_compiles, run  # noqa: E402

hpu_ops = torch.ops.hpu
pytestmark = pytest.mark.skipif(is_lazy(), reason="operators of eager mode")
N, C, EPS = 2, 3, 1e-3


def samples(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_near(found, expected, dtype):
    assert (found.dtype, found.shape) == (dtype, expected.shape)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(found.cpu().double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("places", [(7,), (4, 5), (2, 3, 4)], ids=str)
def test_forward_and_gradients_are_those_of_pytorch(places, dtype, affine):
    x, grad = (
        samples(N, C, *places, dtype=dtype) * 2 + 1,
        samples(N, C, *places, dtype=dtype, seed=1),
    )
    gamma, beta = (samples(C, seed=2), samples(C, seed=3)) if affine else (None, None)
    moved = [each if each is None else each.to("hpu") for each in (gamma, beta)]
    out, mean, istd = hpu_ops.instance_norm(x.to("hpu"), *moved, EPS)
    leaves = [each if each is None else each.double().requires_grad_() for each in (x, gamma, beta)]
    exact = torch.nn.functional.instance_norm(leaves[0], None, None, *leaves[1:], eps=EPS)
    exact.backward(grad.double())
    assert_near(out, exact.detach(), dtype)
    over = x.double().flatten(2)
    assert_near(mean, over.mean(-1), torch.float32)
    assert_near(istd, (over.var(-1, unbiased=False) + EPS).rsqrt(), torch.float32)
    of_x, of_beta, of_gamma = hpu_ops.instance_norm_backward(
        x.to("hpu"), grad.to("hpu"), mean, istd, moved[0]
    )
    assert_near(of_x, leaves[0].grad, torch.float32)
    if affine:
        assert_near(of_gamma, leaves[1].grad, torch.float32)
        assert_near(of_beta, leaves[2].grad, torch.float32)


@pytest.mark.parametrize(
    ("shape", "gamma", "said"),
    [
        ((2, 3), None, "floating-point numbers of shape [N, C, ...], but is Float of [2, 3]."),
        ((2, 3, 4), (2,), "weight must have an element for each of 3 channels, but has shape [2]."),
    ],
    ids=["2D", "weight"],
)
def test_what_the_norm_does_not_take_is_refused(shape, gamma, said):
    weight = gamma and torch.ones(gamma, device="hpu")
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.instance_norm, torch.ones(shape, device="hpu"), weight, None, EPS)
    assert said in str(refused.value)


def everything(x, gamma, beta):
    out, mean, istd = hpu_ops.instance_norm(x, gamma, beta, EPS)
    return (out, mean, istd, *hpu_ops.instance_norm_backward(x, out * 2, mean, istd, gamma))


def test_a_compiled_norm_is_that_of_eager_mode():
    given = [[samples(rows, C, 6).to("hpu"), *[samples(C).to("hpu")] * 2] for rows in (3, 5)]
    assert_compiles(everything, *given)
