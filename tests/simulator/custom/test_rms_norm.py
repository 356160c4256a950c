"""Test RMS normalization and gradient clipping by norm against float64.

Tolerances: 1e-5 for float32 (the vendor's is 1e-3), 1.5e-2 for reduced types like the vendor's.
"""

from functools import partial

import pytest
import torch
from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch.hpex.normalization import (
    FusedClipNorm,
    FusedRMSNorm,
    RmsNormBwdMode,
)
from in_modes import assert_replays, run
from operator_tensors import EAGER, LAZY, assert_matches, rejects

hpu_ops = torch.ops.hpu
TYPES = (torch.float32, torch.bfloat16, torch.float16)
EPS = 1e-5
assert_near = partial(assert_matches, reduced=1.5e-2)


def reference(data, gamma, eps=EPS):
    inverse = (data.double().square().mean(-1, keepdim=True) + eps).rsqrt()
    return data.double() * inverse * gamma.double(), inverse


def result_type(*dtypes):
    return dtypes[0] if len(set(dtypes)) == 1 else torch.float32


@pytest.mark.parametrize("of_gamma", TYPES, ids=str)
@pytest.mark.parametrize("of_data", TYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "shape"),
    [("rms_norm", (3, 4, 8)), ("rms_norm", (6,)), ("rms_norm_fast", (2, 3, 2, 2, 5))],
)
def test_norm_and_inverse_have_the_common_type_or_float32(of_data, of_gamma, shape, name):
    torch.manual_seed(0)
    data, gamma = torch.randn(shape).to(of_data), torch.randn(shape[-1]).to(of_gamma)
    expected, inverse = reference(data, gamma)
    actual, found_inverse = getattr(hpu_ops, name)(data.to("hpu"), gamma.to("hpu"), EPS)
    assert_near(actual, expected, result_type(of_data, of_gamma))
    assert_near(found_inverse, inverse, result_type(of_data, of_gamma))


@pytest.mark.parametrize("of_gamma", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("of_data", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["rms_norm_backward", "rms_norm_fast_backward"])
def test_backward_matches_autograd_in_the_common_type_or_float32(of_data, of_gamma, name):
    torch.manual_seed(0)
    data, gamma = torch.randn(2, 3, 8).to(of_data), torch.randn(8).to(of_gamma)
    grad = torch.randn(2, 3, 8).to(of_data)
    leaves = [each.double().requires_grad_() for each in (data, gamma)]
    expected, inverse = reference(*leaves)
    of_leaves = torch.autograd.grad(expected, leaves, grad.double())
    inverse = inverse.detach().to(result_type(of_data, of_gamma))
    backward = getattr(hpu_ops, name)
    arguments = (grad.to("hpu"), data.to("hpu"), gamma.to("hpu"), inverse.to("hpu"))
    for kernel in ((True, 0), (False, 1)):
        for actual, exact in zip(backward(*arguments, *kernel), of_leaves, strict=True):
            assert_near(actual, exact, result_type(of_data, of_gamma))


def test_permuted_input_is_normalized():
    data, gamma = torch.randn(8, 3, 4).permute(1, 2, 0), torch.randn(8)
    actual, _ = hpu_ops.rms_norm(data.to("hpu"), gamma.to("hpu"), EPS)
    assert_near(actual, reference(data, gamma)[0], torch.float32)


@pytest.mark.parametrize(
    ("data", "gamma", "message"),
    [
        (torch.ones(2, 3), torch.ones(2), "got shapes [2] and [2, 3]."),
        (torch.ones(2, 3).int(), torch.ones(3), "float, bfloat16 or half dtype, but got Int."),
    ],
    ids=["gamma", "int"],
)
def test_invalid_norm_is_rejected(data, gamma, message):
    with rejects(message):
        run(hpu_ops.rms_norm, data.to("hpu"), gamma.to("hpu"), EPS)


@pytest.mark.parametrize("kernel", [(), (False, 1, True), (True, 0, False)], ids=str)
@pytest.mark.parametrize(
    ("of_data", "of_gamma"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.bfloat16,) * 2],
    ids=str,
)
def test_fused_norm_has_the_gradients_of_autograd(of_data, of_gamma, kernel):
    torch.manual_seed(0)
    data, gamma = torch.randn(2, 5, 8).to(of_data), torch.randn(8).to(of_gamma)
    leaves = [each.double().requires_grad_() for each in (data, gamma)]
    moved = [each.to("hpu").requires_grad_() for each in (data, gamma)]
    expected, _ = reference(*leaves)
    expected.sum().backward()
    actual = FusedRMSNorm.apply(*moved, EPS, *kernel)
    actual.sum().backward()
    assert_near(actual.detach(), expected.detach(), result_type(of_data, of_gamma))
    for leaf, exact in zip(moved, leaves, strict=True):
        assert leaf.grad.dtype == leaf.dtype
        torch.testing.assert_close(leaf.grad.cpu().double(), exact.grad, rtol=1.5e-2, atol=3e-2)


def test_backward_modes_have_the_vendors_values():
    assert [(mode.name, mode.value) for mode in RmsNormBwdMode] == [
        ("DEFAULT", 0),
        ("STATIC_CASE_WIDTH_PARTITIONING", 1),
    ]


def test_operator_without_autograd_has_no_gradient():
    data = torch.randn(2, 4, device="hpu", requires_grad=True)
    actual, _ = hpu_ops.rms_norm(data, torch.ones(4, device="hpu"), EPS)
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        actual.sum().backward()
    assert data.grad is None


def parameters_with(*grads, dtype=torch.float32):
    made = []
    for grad in grads:
        parameter = torch.zeros(grad.shape, dtype=dtype, device="hpu", requires_grad=True)
        parameter.grad = grad.to(dtype).to("hpu")
        made.append(parameter)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clipping_scales_all_gradients_by_the_same_factor(max_norm, dtype):
    torch.manual_seed(0)
    grads = [torch.randn(3, 4).to(dtype), torch.randn(5).to(dtype)]
    parameters = parameters_with(*grads, dtype=dtype)
    without = torch.zeros(2, dtype=dtype, device="hpu", requires_grad=True)
    total = torch.cat([grad.double().flatten() for grad in grads]).norm()
    factor = min(1.0, max_norm / (total.item() + 1e-6))
    clip = FusedClipNorm([*parameters, without], max_norm)
    actual = clip.clip_norm([*parameters, without])
    htcore.mark_step()
    assert actual.device.type == "hpu"
    assert_near(actual, total.reshape(1), dtype)
    for parameter, grad in zip(parameters, grads, strict=True):
        assert_near(parameter.grad, grad.double() * factor, dtype)
    assert without.grad is None


def test_clipping_supports_a_single_tensor_and_tensors_without_gradient():
    (parameter,) = parameters_with(torch.tensor([3.0, 4.0]))
    clip = FusedClipNorm(parameter, 1.0)
    assert clip.clip_norm(parameter).cpu().tolist() == [5.0]
    torch.testing.assert_close(parameter.grad.cpu(), torch.tensor([0.6, 0.8]))
    nothing = clip.clip_norm([torch.zeros(2, device="hpu")])
    assert (nothing.item(), nothing.device.type, nothing.shape) == (0.0, "cpu", ())


@EAGER
def test_eager_operator_returns_the_norm_and_writes_it_to_the_last_tensor():
    grads = [torch.tensor([3.0]).to("hpu"), torch.tensor([4.0]).to("hpu")]
    last = torch.zeros(1, device="hpu")
    limit = torch.ones(1, device="hpu")
    actual = hpu_ops.fused_clip_norm([*grads, last], limit, 2.0)
    assert actual.tolist() == last.tolist() == [5.0]
    torch.testing.assert_close(torch.cat(grads).cpu(), torch.tensor([0.6, 0.8]))
    with pytest.raises(RuntimeError, match="unsupported norm_type for FusedClipNorm"):
        hpu_ops.fused_clip_norm([*grads, last], limit, 1.0)
    with pytest.raises(RuntimeError, match="fused_clip_norm : can not process empty grad vector"):
        hpu_ops.fused_clip_norm([], limit, 2.0)
    with pytest.raises(RuntimeError, match=r"Frontend Op \w+ not supported with new Eager mode"):
        _hpex_C.fused_norm([*grads, last], limit, 2.0)


@LAZY
def test_clipping_operator_of_eager_mode_is_absent_in_lazy_mode():
    assert not hasattr(hpu_ops, "fused_clip_norm")


def norm_and_gradients(data, gamma):
    data, gamma = data.detach().requires_grad_(), gamma.detach().requires_grad_()
    result = FusedRMSNorm.apply(data, gamma, EPS)
    return result.detach(), *torch.autograd.grad(result.square().sum(), (data, gamma))


def everything(data, gamma):
    normalized, inverse = hpu_ops.rms_norm(data, gamma, EPS)
    of_data, of_gamma = hpu_ops.rms_norm_backward(data, data, gamma, inverse, True, 0)
    return normalized, inverse, of_data, of_gamma


def operands(rows, seed=0):
    made = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, 8, generator=made).bfloat16().to("hpu"),
        torch.randn(8, generator=made).bfloat16().to("hpu"),
    )


@EAGER
def test_compiled_training_gives_the_gradients_of_eager_mode():
    compiled = torch.compile(
        lambda data, gamma: FusedRMSNorm.apply(data, gamma, EPS), backend="hpu_backend"
    )
    for rows in (3, 6):
        grads = []
        for function in (compiled, lambda data, gamma: FusedRMSNorm.apply(data, gamma, EPS)):
            leaves = [each.detach().requires_grad_() for each in operands(rows)]
            function(*leaves).square().sum().backward()
            grads.append([leaf.grad.cpu() for leaf in leaves])
        for actual, expected in zip(*grads, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1.5e-2, atol=1.5e-2)


@LAZY
def test_norm_and_its_gradients_can_be_replayed():
    assert_replays(norm_and_gradients, operands(3), operands(3, seed=1))


@pytest.mark.parametrize("shape", [(3, 1), (1,), (1, 4)], ids=str)
def test_backward_needs_one_inverse_per_row(shape):
    data, gamma = torch.ones(1, 4, device="hpu"), torch.ones(4, device="hpu")
    inverse = torch.ones(shape, device="hpu")
    with pytest.raises(RuntimeError, match=r"needs an inverse_rms of shape \[1, 1\], but its"):
        run(torch.ops.hpu.rms_norm_backward, data, data, gamma, inverse, False, 0)
