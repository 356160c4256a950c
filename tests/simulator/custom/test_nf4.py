"""Test NF4 weights of bitsandbytes."""

import pytest
import torch
from in_modes import run
from operator_tensors import on_device, rejects

nf4 = torch.ops.hpu.dequantize_nf4


def quantiles():
    """Return the 16 NF4 values, which are quantiles of a normal distribution (QLoRA paper)."""
    normal = torch.distributions.Normal(0, 1)
    offset = 0.9677083
    above = normal.icdf(torch.linspace(offset, 0.5, 9)[:-1])
    below = -normal.icdf(torch.linspace(offset, 0.5, 8)[:-1])
    values = torch.cat([above, torch.zeros(1), below]).sort().values
    return values / values.max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_byte_contains_two_quantiles_the_first_in_the_higher_bits(dtype):
    codes = torch.arange(16).repeat(8)
    factors = torch.tensor([2.0, 0.5])
    data = (codes[::2] << 4 | codes[1::2]).byte()
    actual = nf4(data.to("hpu"), factors.to("hpu"), 64, out_shape=[8, 16], out_dtype=dtype)
    expected = (quantiles()[codes] * factors.repeat_interleave(64)).reshape(8, 16)
    assert (actual.dtype, actual.device.type) == (dtype, "hpu")
    torch.testing.assert_close(
        actual.cpu().float(), expected, rtol=1e-5 if dtype is torch.float32 else 1e-2, atol=1e-5
    )


def test_missing_factors_are_rejected():
    data, factors = torch.zeros(64, dtype=torch.uint8), torch.ones(1)
    with rejects("must have an element for each 64 of 128 weights, but got 1."):
        nf4(data.to("hpu"), factors.to("hpu"), 64, out_shape=[128], out_dtype=torch.float32).cpu()


@pytest.mark.parametrize(
    ("data", "blocksize", "out_dtype", "message"),
    [
        (torch.zeros(63, dtype=torch.uint8), 64, torch.float32, "must contain 128 codes in uint8"),
        (torch.zeros(64), 64, torch.float32, "but got 64 elements of Float."),
        (torch.zeros(64, dtype=torch.uint8), 0, torch.float32, "an element for each 0 of 128"),
        (torch.zeros(64, dtype=torch.uint8), 64, torch.int8, "must be a floating-point dtype"),
    ],
    ids=["short", "float", "no block", "int8"],
)
def test_invalid_weights_are_rejected(data, blocksize, out_dtype, message):
    factors = torch.ones(2, device="hpu")
    with rejects(message):
        run(nf4, data.to("hpu"), factors, blocksize, out_shape=[128], out_dtype=out_dtype)


def everything(data, factors):
    return nf4(data, factors, 64, out_shape=[8, 16], out_dtype=torch.bfloat16)


def operands(_, seed=0):
    made = torch.Generator().manual_seed(seed)
    data = torch.randint(0, 256, (64,), generator=made, dtype=torch.uint8)
    return on_device((data, torch.rand(2, generator=made)))
