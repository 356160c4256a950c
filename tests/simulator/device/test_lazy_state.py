"""Lazy mode: what a thread is in the middle of when work is recorded, and when it runs."""

import pytest
import torch
from torch import nn

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch import core as htcore  # noqa: E402
from habana_frameworks.torch import hpu  # noqa: E402
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402


@pytest.fixture(autouse=True)
def _default_dtype():
    yield
    torch.set_default_dtype(torch.float32)


def quotients(device):
    whole = torch.arange(1, 5).to(device)
    results = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float32):
        torch.set_default_dtype(dtype)
        results += [whole / 2, torch.true_divide(whole, whole), whole.sqrt(), whole * 0.5]
        results += [torch.ones(2, device=device), torch.arange(0, 1, 0.5, device=device)]
        results += [torch.fft.fftfreq(3, device=device), torch.full((2,), 1.5, device=device)]
    return results


def test_results_have_the_default_dtype_of_their_moment():
    expected = quotients("cpu")
    torch.set_default_dtype(torch.float32)
    actual = quotients("hpu")
    assert [result.dtype for result in actual] == [result.dtype for result in expected]
    for result, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(result.cpu(), reference)


@pytest.mark.skipif(not is_lazy(), reason="about recorded work")
def test_recorded_and_captured_work_runs_with_the_default_dtype_it_was_recorded_with():
    whole = torch.tensor([1, 2, 3], device="hpu")
    graph = hpu.HPUGraph()
    with hpu.graph(graph):
        captured = whole / 3
    recorded = whole / 3
    torch.set_default_dtype(torch.float64)
    htcore.mark_step()
    graph.replay()
    assert torch.get_default_dtype() == torch.float64
    for result in (captured, recorded):
        assert result.dtype == torch.float32
        assert torch.equal(result.cpu(), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float32) / 3)


def test_the_cpus_autocast_does_not_reach_into_a_device_operator():
    x = torch.randn(40, 8, device="hpu")
    expected = torch.cdist(x, x)
    with torch.autocast("cpu", torch.bfloat16):
        result = torch.cdist(x, x)
        torch.testing.assert_close(result.cpu(), expected.cpu(), rtol=0, atol=0)


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 4)])
def test_a_margin_loss_has_the_cpus_shape(shape, reduction):
    values = torch.arange(12.0)[: torch.Size(shape).numel()].view(shape)
    target = torch.zeros(shape, dtype=torch.long) - 1
    target[..., 0] = 2
    on_hpu = values.to("hpu").requires_grad_()
    on_cpu = values.clone().requires_grad_()
    loss = nn.MultiLabelMarginLoss(reduction=reduction)
    result, expected = loss(on_hpu, target.to("hpu")), loss(on_cpu, target)
    assert (result.shape, result.stride()) == (expected.shape, expected.stride())
    result.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(on_hpu.grad.cpu(), on_cpu.grad)


@pytest.mark.parametrize("strict", [False, True])
def test_a_model_on_the_device_is_exported(strict):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("hpu")
    x = torch.randn(5, 3, device="hpu") * 2
    exported = torch.export.export(model, (x,), strict=strict)
    torch.testing.assert_close(exported.module()(x).cpu(), model(x).cpu())


def test_work_recorded_before_a_mode_runs_under_it_as_without():
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = torch.arange(6.0, device="hpu").view(2, 3)
    loss = nn.MultiLabelMarginLoss()(x, torch.zeros(2, 3, dtype=torch.long, device="hpu"))
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        assert fake.untyped_storage().nbytes() == 24
        htcore.mark_step()
    expected = nn.MultiLabelMarginLoss()(x.cpu(), torch.zeros(2, 3, dtype=torch.long))
    torch.testing.assert_close(loss.cpu(), expected)


def test_shapes_are_inferred_on_the_device_that_is_meant_whatever_the_default_is():
    with torch.device("hpu"):
        x = torch.arange(12.0).view(1, 1, 3, 4)
        result = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        index = torch.arange(3).repeat_interleave(torch.tensor([1, 2, 0]))
    assert (result.device.type, index.device.type) == ("hpu", "hpu")
    expected = nn.functional.interpolate(x.cpu(), scale_factor=2.0, mode="bilinear")
    torch.testing.assert_close(result.cpu(), expected)
    assert index.tolist() == [0, 1, 1]


def test_a_batched_function_gives_the_cpus_values():
    def function(row):
        return torch.nn.functional.softmax(row @ row.t(), 0).sum(1)

    x = torch.arange(24.0).view(2, 3, 4) / 10
    batched = torch.func.vmap(torch.func.jacrev(function))
    torch.testing.assert_close(batched(x.to("hpu")).cpu(), batched(x))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("last", [(), ("input",), ("weight",), ("input", "weight")])
@pytest.mark.parametrize(("size", "dimensions"), [(160, 2), (30, 3)])
def test_a_large_convolution_has_the_cpus_strides(size, dimensions, last, transposed):
    """Larger than what lazy mode tries on the CPU to learn strides."""
    channels_last = torch.channels_last if dimensions == 2 else torch.channels_last_3d
    ones = torch.ones(2, 4, *[size] * dimensions), torch.ones(4, 4, *[3] * dimensions)
    operands = [
        tensor.contiguous(memory_format=channels_last) if name in last else tensor
        for name, tensor in zip(("input", "weight"), ones, strict=True)
    ]
    convolve = getattr(nn.functional, f"conv{'_transpose' * transposed}{dimensions}d")
    result = convolve(*(tensor.to("hpu") for tensor in operands))
    expected = convolve(*operands)
    assert result.stride() == expected.stride()
    assert torch.zeros_like(result).stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected)


def test_a_group_norms_gradient_has_its_inputs_type_beside_wider_weights():
    """Autograd would hide another one, which costs memory."""
    x, weight = torch.randn(2, 4, 3, 3, dtype=torch.bfloat16), torch.ones(4)
    mean = deviation = torch.ones(2, 2)
    backward = torch.ops.aten.native_group_norm_backward
    tensors = [x, x, mean, deviation, weight]
    expected = backward(*tensors, 2, 4, 9, 2, [True] * 3)
    results = backward(*(one.to("hpu") for one in tensors), 2, 4, 9, 2, [True] * 3)
    assert [one.dtype for one in results] == [one.dtype for one in expected]
    torch.testing.assert_close([one.cpu() for one in results], list(expected))
