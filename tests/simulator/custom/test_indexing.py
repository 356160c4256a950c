"""Test the vendor's index, slice and padding operators against PyTorch on the CPU."""

import pytest
import torch
from habana_frameworks.torch.utils.internal import is_lazy
from in_modes import run
from operator_tensors import EAGER, on_device, rejects

hpu_ops = torch.ops.hpu
LAZY_MODE = is_lazy()  # a constant, for compiled functions


@pytest.mark.parametrize("integer", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize(
    "indices",
    [[[2, 0]], [[1], [3, -1]], [[[0, 1], [2, 1]], [[3, 3], [0, 1]]], [[]], []],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.bool], ids=str)
def test_indices_select_in_the_leading_dimensions(dtype, indices, integer):
    x = (torch.randn(3, 4, 2) * 3).to(dtype)
    tensors = [torch.tensor(each, dtype=integer) for each in indices]
    actual = hpu_ops.plain_index(x.to("hpu"), on_device(tensors))
    expected = x[tuple(each.long() for each in tensors)] if tensors else x
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.tensor([True, False, True]), "requires int64 or int32 indices, but got Bool."),
        (torch.tensor([3]), "index 3 is out of bounds for dimension 0 with size 3"),
    ],
    ids=["bool", "bounds"],
)
def test_invalid_indices_are_rejected(index, message):
    x = torch.ones(3, 4).to("hpu")
    with rejects(message, RuntimeError, IndexError):
        run(hpu_ops.plain_index, x, [index.to("hpu")])
    with pytest.raises(RuntimeError, match="plain_index has 3 indices for 2 dimensions"):
        run(hpu_ops.plain_index, x, [torch.zeros(1).long().to("hpu")] * 3)


@EAGER
@pytest.mark.parametrize("cut", [(0, 1, 3, 1), (1, -3, 100, 2), (-1, 0, 1, 1)], ids=str)
def test_slice_is_a_copy(cut):
    x = torch.arange(24.0).reshape(4, 3, 2)
    device = x.to("hpu")
    actual = hpu_ops.slice_ds(device, *cut, [7, 7, 7])
    assert torch.equal(actual.cpu(), torch.ops.aten.slice(x, *cut))
    actual.zero_()
    assert torch.equal(device.cpu(), x)


@EAGER
@pytest.mark.parametrize("pad", [(1, 2), (0, 1, 2, 0), (-1, 1)], ids=str)
def test_padding_matches_pytorch(pad):
    x = torch.randn(3, 4)
    actual = hpu_ops.constant_pad_nd_ds(x.to("hpu"), pad, 1.5)
    assert torch.equal(actual.cpu(), torch.nn.functional.pad(x, pad, value=1.5))


def everything(x, first, second):
    results = [hpu_ops.plain_index(x, [first, second])]
    if not LAZY_MODE:
        results.append(hpu_ops.slice_ds(x, 1, 1, x.shape[1], 2))
        results.append(hpu_ops.constant_pad_nd_ds(x, [1, x.shape[0]], 0.5))
    return tuple(results)


def operands(rows, seed=0):
    made = torch.Generator().manual_seed(seed)
    chosen = [torch.randint(0, 3, (rows, 2), generator=made) for _ in range(2)]
    return [each.to("hpu") for each in (torch.randn(rows, 4, generator=made), *chosen)]
