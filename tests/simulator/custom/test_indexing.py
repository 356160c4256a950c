"""Indices, slices and padding by the vendor's names, against PyTorch's own on the CPU."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_compiles, assert_replays, run  # noqa: E402

hpu_ops = torch.ops.hpu
LAZY = is_lazy()
EAGER = pytest.mark.skipif(is_lazy(), reason="operators of eager mode")


@pytest.mark.parametrize("whole", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize(
    "indices",
    [[[2, 0]], [[1], [3, -1]], [[[0, 1], [2, 1]], [[3, 3], [0, 1]]], [[]], []],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.bool], ids=str)
def test_indices_choose_in_the_leading_dimensions(dtype, indices, whole):
    x = (torch.randn(3, 4, 2) * 3).to(dtype)
    given = [torch.tensor(each, dtype=whole) for each in indices]
    found = hpu_ops.plain_index(x.to("hpu"), [each.to("hpu") for each in given])
    expected = x[tuple(each.long() for each in given)] if given else x
    assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (torch.tensor([True, False, True]), "needs indices of int64 or int32, but one is Bool."),
        (torch.tensor([3]), "index 3 is out of bounds for dimension 0 with size 3"),
    ],
    ids=["bool", "bounds"],
)
def test_other_indices_are_refused(index, said):
    x = torch.ones(3, 4).to("hpu")
    with pytest.raises((RuntimeError, IndexError)) as refused:
        run(hpu_ops.plain_index, x, [index.to("hpu")])
    assert said in str(refused.value)
    with pytest.raises(RuntimeError, match="plain_index has 3 indices for 2 dimensions"):
        run(hpu_ops.plain_index, x, [torch.zeros(1).long().to("hpu")] * 3)


@EAGER
@pytest.mark.parametrize("cut", [(0, 1, 3, 1), (1, -3, 100, 2), (-1, 0, 1, 1)], ids=str)
def test_a_slice_is_a_tensor_of_its_own(cut):
    x = torch.arange(24.0).reshape(4, 3, 2)
    given = x.to("hpu")
    found = hpu_ops.slice_ds(given, *cut, [7, 7, 7])
    assert torch.equal(found.cpu(), torch.ops.aten.slice(x, *cut))
    found.zero_()
    assert torch.equal(given.cpu(), x)


@EAGER
@pytest.mark.parametrize("pad", [(1, 2), (0, 1, 2, 0), (-1, 1)], ids=str)
def test_a_padded_tensor_is_that_of_pytorch(pad):
    x = torch.randn(3, 4)
    found = hpu_ops.constant_pad_nd_ds(x.to("hpu"), pad, 1.5)
    assert torch.equal(found.cpu(), torch.nn.functional.pad(x, pad, value=1.5))


def everything(x, first, second):
    results = [hpu_ops.plain_index(x, [first, second])]
    if not LAZY:
        results.append(hpu_ops.slice_ds(x, 1, 1, x.shape[1], 2))
        results.append(hpu_ops.constant_pad_nd_ds(x, [1, x.shape[0]], 0.5))
    return tuple(results)


def operands(rows, seed=0):
    made = torch.Generator().manual_seed(seed)
    chosen = [torch.randint(0, 3, (rows, 2), generator=made) for _ in range(2)]
    return [each.to("hpu") for each in (torch.randn(rows, 4, generator=made), *chosen)]


@EAGER
def test_compiled_parts_are_those_of_eager_mode():
    assert_compiles(everything, operands(3), operands(5))


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_a_replay_chooses_from_what_lies_in_the_captured_inputs():
    assert_replays(everything, operands(3), operands(3, seed=1))
