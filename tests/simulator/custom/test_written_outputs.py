"""Compiled operators write the same values into their outputs as in eager mode."""

import pytest
import torch
from operator_tensors import E4M3, E5M2, EAGER

hpu_ops = torch.ops.hpu
pytestmark = EAGER


def compiled(function):
    return torch.compile(function, backend="hpu_backend", fullgraph=True)


def cast_into(numbers, scale, out, amax):
    cast, largest = hpu_ops.cast_to_fp8(numbers, scale, False, out, amax)
    return cast.float() * 2, largest + 1


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("of_amax", [(), (1,), (0,)], ids=str)
def test_compiled_cast_fills_its_output_tensors(dtype, of_amax):
    function = compiled(cast_into)
    for rows in (3, 5):
        numbers, scale = torch.randn(rows, 4, device="hpu"), torch.tensor(2.0).to("hpu")
        outputs = [
            (torch.zeros(rows, 4, device="hpu", dtype=dtype), torch.zeros(of_amax, device="hpu"))
            for _ in range(2)
        ]
        expected = cast_into(numbers, scale, *outputs[0])
        actual = function(numbers, scale, *outputs[1])
        assert outputs[0][0].float().any()
        for one, other in zip((*outputs[1], *actual), (*outputs[0], *expected), strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert torch.equal(one.cpu().float(), other.cpu().float())


def accumulate_into(a, b, out):
    """Accumulate into a view of the caller's tensor, which is also the output."""
    rows = out[1:]
    product = hpu_ops.fp8_gemm(a, False, b, True, rows, torch.float32, None, None, None, True, rows)
    return product * 2


def test_compiled_product_accumulates_into_a_view():
    function = compiled(accumulate_into)
    for rows in (3, 5):
        a = torch.randn(rows, 8).to(E4M3).to("hpu")
        b = torch.randn(4, 8).to(E4M3).to("hpu")
        outs = [torch.arange(4.0 * (rows + 1)).reshape(-1, 4).to("hpu") for _ in range(2)]
        expected = accumulate_into(a, b, outs[0])
        actual = function(a, b, outs[1])
        assert torch.equal(actual.cpu(), expected.cpu())
        assert torch.equal(outs[1].cpu(), outs[0].cpu())
        exact = a.cpu().double() @ b.cpu().double().T
        exact = exact + torch.arange(4.0, 4.0 * (rows + 1)).reshape(-1, 4)
        torch.testing.assert_close(outs[1][1:].cpu().double(), exact, rtol=1e-6, atol=1e-5)
        assert torch.equal(outs[1][0].cpu(), torch.arange(4.0))


def test_compiled_cast_rejects_an_output_of_another_shape():
    arguments = torch.ones(2, 4, device="hpu"), None
    output = torch.zeros(3, 4, device="hpu", dtype=E4M3), torch.zeros((), device="hpu")
    with pytest.raises(Exception, match="Input and output must have the same shape"):
        compiled(cast_into)(*arguments, *output)


def test_compiled_product_rejects_an_output_of_another_dtype():
    fp8 = torch.ones(2, 2).to(E4M3).to("hpu")
    with pytest.raises(Exception, match="Fp8Gemm out must have out_dtype"):
        compiled(accumulate_into)(fp8, fp8, torch.zeros(3, 2, device="hpu", dtype=torch.bfloat16))
