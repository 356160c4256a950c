"""All operators of PyTorch's test database match the CPU, forward and backward."""

import pytest
import torch
from habana_frameworks.torch.utils.internal import is_lazy
from operator_samples import (
    MOST_ELEMENTS,
    SPARSE,
    UNINITIALIZED,
    assert_close,
    call,
    elements,
    gradients,
    name_of,
    on_hpu,
    quick_samples,
    tensors,
)
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = [
    *(torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
]

# Per operator and dtype, evenly spaced; three times as many for float32. Lazy mode runs the same
# kernels as eager mode, so it needs fewer.
MOST_SAMPLES = 25 if is_lazy() else 100
SKIPPED = {
    **SPARSE,
    "tensor_split": "PyTorch needs the indices on the CPU; see below",
    "nn.functional.linear_cross_entropy.chunked": "PyTorch's chunks differ off the CPU",
    "nn.functional.linear_cross_entropy.chunked_none": "PyTorch's chunks differ off the CPU",
    "as_strided.partial_views": "reads beyond its input, where the bytes differ",
}
# In lazy mode, PyTorch's meta kernels determine strides. They differ from the CPU kernels in:
INFERRED_OTHERWISE = {
    "nn.functional.rms_norm": "an empty result, whose strides have no meaning",
    "tensordot": "a bfloat16 gradient: the product of an expanded and a transposed tensor",
}
# A card sums these in float32 and rounds once, and so does the device if the processor has no
# 16-bit instructions. The CPU kernels round intermediate sums.
SUMMED_ONCE = {
    f"nn.functional.{kind}{dim}d" for kind in ("conv", "conv_transpose") for dim in (1, 2, 3)
}
HAS_INSTRUCTIONS = {
    torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
    torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
}
# Without a device argument, these create CPU tensors for inputs on any device.
PLACED_BY_ARGUMENT = {
    *("arange", "linspace", "logspace", "to", "eye", "full", "ones", "zeros", "signal.windows"),
    *("randn", "tril_indices", "triu_indices"),
}


@pytest.fixture(autouse=True, scope="module")
def _quick_samples():
    with quick_samples():
        yield


def layout(op, tensor):
    if is_lazy() and name_of(op) in INFERRED_OTHERWISE:
        return tensor.dtype, tensor.shape
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()


def out_of_range(error):
    """Skip samples with int64 values that lazy mode rejects; raise any other error."""
    if not is_lazy() or not str(error).startswith("Error when trying to cast Long to Int"):
        raise error
    return False


def in_float32(op, sample):
    """Return a 16-bit sample in float32 if the device computes in float32, else None."""
    if op.name not in SUMMED_ONCE:
        return None
    dtype = sample.input.dtype
    if dtype not in HAS_INSTRUCTIONS or HAS_INSTRUCTIONS[dtype]():
        return None

    def widened(value):
        if not isinstance(value, torch.Tensor) or value.dtype != dtype:
            return value
        return value.detach().float().requires_grad_(value.requires_grad)

    return sample.transform(widened)


def rounded(values, like):
    return [
        one if other is None else one.to(other.dtype)
        for one, other in zip(values, like, strict=True)
    ]


def compare(op, sample, with_gradients):
    try:
        on_device = on_hpu(sample)  # before the call: some operators change their inputs
    except RuntimeError as error:
        return out_of_range(error)
    try:
        wide = in_float32(op, sample)
        expected = tensors(call(op, sample))
        expected_gradients = gradients(sample, expected) if with_gradients else []
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False  # invalid on the CPU too
    try:
        actual = tensors(call(op, on_device))
    except RuntimeError as error:
        return out_of_range(error)
    assert len(actual) == len(expected)
    values, of_gradients = expected, expected_gradients
    if wide is not None:
        results = tensors(call(op, wide))
        values = rounded(results, expected)
        of_gradients = (
            rounded(gradients(wide, results), expected_gradients) if with_gradients else []
        )
    for result, reference, value in zip(actual, expected, values, strict=True):
        if tensors((sample.input, sample.args)) and op.name not in PLACED_BY_ARGUMENT:
            assert result.device.type == "hpu"
        assert layout(op, result) == layout(op, reference)
        if op.name not in UNINITIALIZED:
            assert_close(result.detach().cpu(), value.detach())
    if with_gradients:
        results = gradients(on_device, actual)
        for result, reference, value in zip(results, expected_gradients, of_gradients, strict=True):
            if reference is not None:
                assert layout(op, result) == layout(op, reference)
                # The CPU rounds float16 differently in vectorized loops and their remainders,
                # which depend on the alignment.
                close = {"rtol": 4e-3, "atol": 1e-3} if reference.dtype == torch.float16 else {}
                assert_close(result.cpu(), value, **close)
    return True


@pytest.mark.parametrize("op", op_db, ids=name_of)
def test_operator_equals_the_cpu(op):
    if op.name.startswith("jiterator"):
        pytest.skip("compiles CUDA code")
    if name_of(op) in SKIPPED:
        pytest.skip(SKIPPED[name_of(op)])
    compared = 0
    for dtype in DTYPES:
        if dtype not in op.dtypes:
            continue
        with_gradients = (
            op.supports_autograd
            and (dtype.is_floating_point or dtype.is_complex)
            and dtype in op.backward_dtypes
            and not (op.name == "renorm" and dtype.is_complex)  # NaN on the CPU: in float64, no
            # value equals the largest one, which is float32
        )
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=with_gradients))
        # Some operators have thousands of samples, one for each combination of options.
        most = 3 * MOST_SAMPLES if dtype == torch.float32 else MOST_SAMPLES
        for sample in samples[:: -(-len(samples) // most) or 1]:
            if op.name == "nn.functional.gelu":
                sample.kwargs["approximate"] = "tanh"  # the default of a card
            if elements(sample) <= MOST_ELEMENTS:
                compared += compare(op, sample, with_gradients)
    if not compared:
        pytest.skip("the CPU build of PyTorch supports no sample")


def test_float8_e4m3fn_saturates_at_the_largest_value_of_gaudi2():
    values = torch.tensor([300.0, -1000.0, 3.0], device="hpu").to(torch.float8_e4m3fn)
    assert values.float().tolist() == [240.0, -240.0, 3.0]


def test_tensor_split_accepts_indices_on_the_cpu():
    parts = torch.arange(6, device="hpu").tensor_split(torch.tensor([2, 3]))
    assert [part.tolist() for part in parts] == [[0, 1], [2], [3, 4, 5]]
