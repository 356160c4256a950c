"""Test matmuls of 16-bit operands with a float32 ``out`` against float32 matmuls."""

import pytest
import torch
from in_modes import assert_replays, run
from operator_tensors import LAZY

SIXTEEN_BITS = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)

SHAPES = {
    "mm": [(3, 5), (5, 7)],
    "bmm": [(2, 3, 5), (2, 5, 7)],
    "mv": [(3, 5), (5,)],
    "dot": [(5,), (5,)],
    "addmm": [(3, 7), (3, 5), (5, 7)],
    "addmv": [(3,), (3, 5), (5,)],
    "addbmm": [(3, 7), (2, 3, 5), (2, 5, 7)],
    "baddbmm": [(2, 3, 7), (2, 3, 5), (2, 5, 7)],
}
MATMULS = [
    [(3, 5), (5, 7)],
    [(5,), (5,)],
    [(2, 3, 5), (5, 7)],
    [(2, 1, 3, 5), (4, 5, 7)],
    [(96, 80), (80, 64)],
]


def operands(shapes, dtype):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def check(function, operands):
    """Compare a call that writes to float32 with one that computes in float32."""
    expected = function(*[operand.float() for operand in operands])
    out = torch.full(expected.shape, 7.0, device="hpu")
    run(function, *[operand.to("hpu") for operand in operands], out=out)
    assert (out.dtype, out.shape) == (torch.float32, expected.shape)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-6, atol=1e-6)


@SIXTEEN_BITS
@pytest.mark.parametrize("name", SHAPES)
def test_output_holds_unrounded_sums(name, dtype):
    check(getattr(torch, name), operands(SHAPES[name], dtype))


@SIXTEEN_BITS
@pytest.mark.parametrize("shapes", MATMULS, ids=str)
def test_matmul_writes_to_float32(shapes, dtype):
    check(torch.matmul, operands(shapes, dtype))


def test_operands_and_output_are_views():
    left, right = operands([(5, 3), (7, 5)], torch.bfloat16)
    whole = torch.zeros(3, 14, device="hpu")
    out = whole[:, ::2]
    run(torch.mm, left.to("hpu").t(), right.to("hpu").t(), out=out)
    expected = torch.zeros(3, 14)
    expected[:, ::2] = left.float().t() @ right.float().t()
    torch.testing.assert_close(whole.cpu(), expected, rtol=1e-6, atol=1e-6)


def test_output_is_resized():
    left, right = operands(SHAPES["mm"], torch.bfloat16)
    out = torch.empty(0, device="hpu")
    run(torch.mm, left.to("hpu"), right.to("hpu"), out=out)
    torch.testing.assert_close(out.cpu(), left.float() @ right.float(), rtol=1e-6, atol=1e-6)


@LAZY
def test_graph_writes_to_float32():
    samples = [[each.to("hpu") for each in operands(SHAPES["bmm"], torch.bfloat16)]]
    samples.append([2 * each for each in samples[0]])
    assert_replays(lambda a, b: torch.bmm(a, b, out=torch.empty(2, 3, 7, device="hpu")), *samples)


@pytest.mark.parametrize(
    ("dtypes", "out"),
    [
        ((torch.bfloat16, torch.bfloat16), torch.float16),
        ((torch.bfloat16, torch.bfloat16), torch.int32),
        ((torch.bfloat16, torch.float16), torch.float32),
        ((torch.float32, torch.float32), torch.bfloat16),
    ],
    ids=str,
)
def test_other_dtypes_are_refused(dtypes, out):
    left, right = (
        torch.ones(shape, dtype=dtype, device="hpu")
        for shape, dtype in zip(SHAPES["mm"], dtypes, strict=True)
    )
    output = torch.full((3, 7), 2, dtype=out, device="hpu")
    with pytest.raises(RuntimeError, match="dtype"):
        run(torch.mm, left, right, out=output)
    assert torch.equal(output.cpu(), torch.full((3, 7), 2, dtype=out))
