"""Test thread state (default dtype, modes, autocast) when operations are recorded and executed."""

import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch import hpu
from habana_frameworks.torch.utils.internal import is_lazy
from torch import nn


@pytest.fixture(autouse=True)
def _default_dtype():
    yield
    torch.set_default_dtype(torch.float32)


def quotients(device):
    integers = torch.arange(1, 5).to(device)
    results = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float32):
        torch.set_default_dtype(dtype)
        results += [
            integers / 2,
            torch.true_divide(integers, integers),
            integers.sqrt(),
            integers * 0.5,
        ]
        results += [torch.ones(2, device=device), torch.arange(0, 1, 0.5, device=device)]
        results += [torch.fft.fftfreq(3, device=device), torch.full((2,), 1.5, device=device)]
    return results


def test_results_have_the_default_dtype_at_their_call():
    expected = quotients("cpu")
    torch.set_default_dtype(torch.float32)
    actual = quotients("hpu")
    assert [result.dtype for result in actual] == [result.dtype for result in expected]
    for result, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(result.cpu(), reference)


@pytest.mark.skipif(not is_lazy(), reason="only lazy mode records operations")
def test_recorded_operations_use_the_default_dtype_at_their_recording():
    integers = torch.tensor([1, 2, 3], device="hpu")
    graph = hpu.HPUGraph()
    with hpu.graph(graph):
        captured = integers / 3
    recorded = integers / 3
    torch.set_default_dtype(torch.float64)
    htcore.mark_step()
    graph.replay()
    assert torch.get_default_dtype() == torch.float64
    for result in (captured, recorded):
        assert result.dtype == torch.float32
        assert torch.equal(result.cpu(), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float32) / 3)


def test_cpu_autocast_does_not_affect_device_operators():
    x = torch.randn(40, 8, device="hpu")
    expected = torch.cdist(x, x)
    with torch.autocast("cpu", torch.bfloat16):
        result = torch.cdist(x, x)
        torch.testing.assert_close(result.cpu(), expected.cpu(), rtol=0, atol=0)


@pytest.mark.parametrize("strict", [False, True])
def test_model_on_the_device_can_be_exported(strict):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("hpu")
    x = torch.randn(5, 3, device="hpu") * 2
    exported = torch.export.export(model, (x,), strict=strict)
    torch.testing.assert_close(exported.module()(x).cpu(), model(x).cpu())


def test_recorded_operations_ignore_a_later_fake_tensor_mode():
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = torch.arange(6.0, device="hpu").view(2, 3)
    loss = nn.MultiLabelMarginLoss()(x, torch.zeros(2, 3, dtype=torch.long, device="hpu"))
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        assert fake.untyped_storage().nbytes() == 24
        htcore.mark_step()
    expected = nn.MultiLabelMarginLoss()(x.cpu(), torch.zeros(2, 3, dtype=torch.long))
    torch.testing.assert_close(loss.cpu(), expected)


def test_shape_inference_ignores_the_default_device():
    with torch.device("hpu"):
        x = torch.arange(12.0).view(1, 1, 3, 4)
        result = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        index = torch.arange(3).repeat_interleave(torch.tensor([1, 2, 0]))
    assert (result.device.type, index.device.type) == ("hpu", "hpu")
    expected = nn.functional.interpolate(x.cpu(), scale_factor=2.0, mode="bilinear")
    torch.testing.assert_close(result.cpu(), expected)
    assert index.tolist() == [0, 1, 1]


def test_vmapped_jacobian_matches_the_cpu():
    def function(row):
        return torch.nn.functional.softmax(row @ row.t(), 0).sum(1)

    x = torch.arange(24.0).view(2, 3, 4) / 10
    batched = torch.func.vmap(torch.func.jacrev(function))
    torch.testing.assert_close(batched(x.to("hpu")).cpu(), batched(x))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("last", [(), ("input",), ("weight",), ("input", "weight")])
@pytest.mark.parametrize(("size", "dimensions"), [(50_000, 1), (160, 2), (30, 3)])
def test_large_convolution_has_the_strides_of_the_cpu(size, dimensions, last, transposed):
    """The sizes exceed those for which lazy mode tries a CPU kernel to determine strides."""
    ones = torch.ones(2, 4, *[size] * dimensions), torch.ones(4, 4, *[3] * dimensions)
    operands = [
        tensor.movedim(1, -1).contiguous().movedim(-1, 1) if name in last else tensor
        for name, tensor in zip(("input", "weight"), ones, strict=True)
    ]
    convolve = getattr(nn.functional, f"conv{'_transpose' * transposed}{dimensions}d")
    result = convolve(*(tensor.to("hpu") for tensor in operands))
    expected = convolve(*operands)
    assert result.stride() == expected.stride()
    assert torch.zeros_like(result).stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected)


def test_group_norm_gradient_has_the_input_type_with_wider_weights():
    """Autograd would hide a wider gradient, which costs memory."""
    x, weight = torch.randn(2, 4, 3, 3, dtype=torch.bfloat16), torch.ones(4)
    mean = deviation = torch.ones(2, 2)
    backward = torch.ops.aten.native_group_norm_backward
    tensors = [x, x, mean, deviation, weight]
    expected = backward(*tensors, 2, 4, 9, 2, [True] * 3)
    results = backward(*(tensor.to("hpu") for tensor in tensors), 2, 4, 9, 2, [True] * 3)
    assert [result.dtype for result in results] == [result.dtype for result in expected]
    torch.testing.assert_close([result.cpu() for result in results], list(expected))
