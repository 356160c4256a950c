"""Root mean square normalization and clipping by norm, against float64.

The tolerances are the vendor's: 1e-3 for float32 results (here 1e-5), 1.5e-2 for reduced ones.
"""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch import _hpex_C  # noqa: E402
from habana_frameworks.torch import core as htcore  # noqa: E402
from habana_frameworks.torch.hpex.normalization import (  # noqa: E402
    FusedClipNorm,
    FusedRMSNorm,
    RmsNormBwdMode,
)
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_compiles, assert_replays, run  # noqa: E402

hpu_ops = torch.ops.hpu
TYPES = (torch.float32, torch.bfloat16, torch.float16)
EPS = 1e-5


def reference(data, gamma, eps=EPS):
    inverse = (data.double().square().mean(-1, keepdim=True) + eps).rsqrt()
    return data.double() * inverse * gamma.double(), inverse


def assert_near(found, expected, dtype):
    assert (found.dtype, found.shape) == (dtype, expected.shape)
    tolerance = 1e-5 if dtype is torch.float32 else 1.5e-2
    torch.testing.assert_close(found.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def result_type(*dtypes):
    return dtypes[0] if len(set(dtypes)) == 1 else torch.float32


@pytest.mark.parametrize("of_gamma", TYPES, ids=str)
@pytest.mark.parametrize("of_data", TYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "shape"),
    [("rms_norm", (3, 4, 8)), ("rms_norm", (6,)), ("rms_norm_fast", (2, 3, 2, 2, 5))],
)
def test_the_norm_and_its_inverse_have_the_common_type_or_float32(of_data, of_gamma, shape, name):
    torch.manual_seed(0)
    data, gamma = torch.randn(shape).to(of_data), torch.randn(shape[-1]).to(of_gamma)
    expected, inverse = reference(data, gamma)
    found, found_inverse = getattr(hpu_ops, name)(data.to("hpu"), gamma.to("hpu"), EPS)
    assert_near(found, expected, result_type(of_data, of_gamma))
    assert_near(found_inverse, inverse, result_type(of_data, of_gamma))


@pytest.mark.parametrize("of_gamma", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("of_data", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["rms_norm_backward", "rms_norm_fast_backward"])
def test_the_backward_is_that_of_autograd_in_the_common_type_or_float32(of_data, of_gamma, name):
    torch.manual_seed(0)
    data, gamma = torch.randn(2, 3, 8).to(of_data), torch.randn(8).to(of_gamma)
    grad = torch.randn(2, 3, 8).to(of_data)
    leaves = [each.double().requires_grad_() for each in (data, gamma)]
    expected, inverse = reference(*leaves)
    of_leaves = torch.autograd.grad(expected, leaves, grad.double())
    inverse = inverse.detach().to(result_type(of_data, of_gamma))
    backward = getattr(hpu_ops, name)
    given = (grad.to("hpu"), data.to("hpu"), gamma.to("hpu"), inverse.to("hpu"))
    for kernel in ((True, 0), (False, 1)):
        for found, exact in zip(backward(*given, *kernel), of_leaves, strict=True):
            assert_near(found, exact, result_type(of_data, of_gamma))


def test_an_input_without_memory_order_is_normalized_too():
    data, gamma = torch.randn(8, 3, 4).permute(1, 2, 0), torch.randn(8)
    found, _ = hpu_ops.rms_norm(data.to("hpu"), gamma.to("hpu"), EPS)
    assert_near(found, reference(data, gamma)[0], torch.float32)


@pytest.mark.parametrize(
    ("data", "gamma", "said"),
    [
        (torch.ones(2, 3), torch.ones(2), "have shapes [2] and [2, 3]."),
        (torch.ones(2, 3).int(), torch.ones(3), "float, bfloat16 or half dtype, but one is Int."),
    ],
    ids=["gamma", "int"],
)
def test_what_the_norm_does_not_take_is_refused(data, gamma, said):
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.rms_norm, data.to("hpu"), gamma.to("hpu"), EPS)
    assert said in str(refused.value)


@pytest.mark.parametrize("kernel", [(), (False, 1, True), (True, 0, False)], ids=str)
@pytest.mark.parametrize(
    ("of_data", "of_gamma"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.bfloat16,) * 2],
    ids=str,
)
def test_the_fused_norm_has_the_gradients_of_autograd(of_data, of_gamma, kernel):
    torch.manual_seed(0)
    data, gamma = torch.randn(2, 5, 8).to(of_data), torch.randn(8).to(of_gamma)
    leaves = [each.double().requires_grad_() for each in (data, gamma)]
    on_device = [each.to("hpu").requires_grad_() for each in (data, gamma)]
    expected, _ = reference(*leaves)
    expected.sum().backward()
    found = FusedRMSNorm.apply(*on_device, EPS, *kernel)
    found.sum().backward()
    assert_near(found.detach(), expected.detach(), result_type(of_data, of_gamma))
    for leaf, exact in zip(on_device, leaves, strict=True):
        assert leaf.grad.dtype == leaf.dtype
        torch.testing.assert_close(leaf.grad.cpu().double(), exact.grad, rtol=1.5e-2, atol=3e-2)


def test_the_modes_of_the_backward_have_the_vendors_values():
    assert [(mode.name, mode.value) for mode in RmsNormBwdMode] == [
        ("DEFAULT", 0),
        ("STATIC_CASE_WIDTH_PARTITIONING", 1),
    ]


def test_a_norm_alone_has_no_gradient():
    data = torch.randn(2, 4, device="hpu", requires_grad=True)
    found, _ = hpu_ops.rms_norm(data, torch.ones(4, device="hpu"), EPS)
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        found.sum().backward()
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
def test_clipping_multiplies_all_gradients_by_one_factor(max_norm, dtype):
    torch.manual_seed(0)
    grads = [torch.randn(3, 4).to(dtype), torch.randn(5).to(dtype)]
    parameters = parameters_with(*grads, dtype=dtype)
    without = torch.zeros(2, dtype=dtype, device="hpu", requires_grad=True)
    total = torch.cat([grad.double().flatten() for grad in grads]).norm()
    factor = min(1.0, max_norm / (total.item() + 1e-6))
    clip = FusedClipNorm([*parameters, without], max_norm)
    found = clip.clip_norm([*parameters, without])
    htcore.mark_step()
    assert found.device.type == "hpu"
    assert_near(found, total.reshape(1), dtype)
    for parameter, grad in zip(parameters, grads, strict=True):
        assert_near(parameter.grad, grad.double() * factor, dtype)
    assert without.grad is None


def test_clipping_takes_a_single_tensor_and_none_with_gradients():
    (parameter,) = parameters_with(torch.tensor([3.0, 4.0]))
    clip = FusedClipNorm(parameter, 1.0)
    assert clip.clip_norm(parameter).cpu().tolist() == [5.0]
    torch.testing.assert_close(parameter.grad.cpu(), torch.tensor([0.6, 0.8]))
    nothing = clip.clip_norm([torch.zeros(2, device="hpu")])
    assert (nothing.item(), nothing.device.type, nothing.shape) == (0.0, "cpu", ())


@pytest.mark.skipif(is_lazy(), reason="an operator of eager mode")
def test_the_operator_of_eager_mode_writes_the_norm_last_and_returns_it():
    grads = [torch.tensor([3.0]).to("hpu"), torch.tensor([4.0]).to("hpu")]
    last = torch.zeros(1, device="hpu")
    limit = torch.ones(1, device="hpu")
    found = hpu_ops.fused_clip_norm([*grads, last], limit, 2.0)
    assert found.tolist() == last.tolist() == [5.0]
    torch.testing.assert_close(torch.cat(grads).cpu(), torch.tensor([0.6, 0.8]))
    with pytest.raises(RuntimeError, match="unsupported norm_type for FusedClipNorm"):
        hpu_ops.fused_clip_norm([*grads, last], limit, 1.0)
    with pytest.raises(RuntimeError, match="fused_clip_norm : can not process empty grad vector"):
        hpu_ops.fused_clip_norm([], limit, 2.0)
    with pytest.raises(RuntimeError, match=r"Frontend Op \w+ not supported with new Eager mode"):
        _hpex_C.fused_norm([*grads, last], limit, 2.0)


@pytest.mark.skipif(not is_lazy(), reason="a mode without this operator")
def test_lazy_mode_has_no_clipping_operator_of_eager_mode():
    assert not hasattr(hpu_ops, "fused_clip_norm")


def norm_and_gradients(data, gamma):
    data, gamma = data.detach().requires_grad_(), gamma.detach().requires_grad_()
    result = FusedRMSNorm.apply(data, gamma, EPS)
    return result.detach(), *torch.autograd.grad(result.square().sum(), (data, gamma))


def norm_alone(data, gamma):
    normalized, inverse = hpu_ops.rms_norm(data, gamma, EPS)
    of_data, of_gamma = hpu_ops.rms_norm_backward(data, data, gamma, inverse, True, 0)
    return normalized, inverse, of_data, of_gamma


def operands(rows, seed=0):
    made = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, 8, generator=made).bfloat16().to("hpu"),
        torch.randn(8, generator=made).bfloat16().to("hpu"),
    )


@pytest.mark.skipif(is_lazy(), reason="lazy mode has no compile backend")
def test_a_compiled_norm_is_that_of_eager_mode():
    assert_compiles(norm_alone, operands(3), operands(5))
    compiled = torch.compile(
        lambda data, gamma: FusedRMSNorm.apply(data, gamma, EPS), backend="hpu_backend"
    )
    for rows in (3, 6):
        grads = []
        for function in (compiled, lambda data, gamma: FusedRMSNorm.apply(data, gamma, EPS)):
            leaves = [each.detach().requires_grad_() for each in operands(rows)]
            function(*leaves).square().sum().backward()
            grads.append([leaf.grad.cpu() for leaf in leaves])
        for found, expected in zip(*grads, strict=True):
            torch.testing.assert_close(found, expected, rtol=1.5e-2, atol=1.5e-2)


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_a_replay_normalizes_what_lies_in_the_captured_input():
    assert_replays(norm_alone, operands(3), operands(3, seed=1))
    assert_replays(norm_and_gradients, operands(3), operands(3, seed=1))


@pytest.mark.parametrize("shape", [(3, 1), (1,), (1, 4)], ids=str)
def test_the_backward_takes_the_inverse_of_each_row_alone(shape):
    data, gamma = torch.ones(1, 4, device="hpu"), torch.ones(4, device="hpu")
    inverse = torch.ones(shape, device="hpu")
    with pytest.raises(RuntimeError, match=r"needs an inverse_rms of shape \[1, 1\], but its"):
        run(torch.ops.hpu.rms_norm_backward, data, data, gamma, inverse, False, 0)
