"""Nested tensors: the device supports the same operations as the CPU."""

import pytest
import torch
from habana_frameworks.torch.utils.internal import is_lazy
from torch.nn import functional as F

ROWS = ((3, 16), (5, 16), (2, 16))


@pytest.fixture
def strided(needs):
    """Skip a test if PyTorch does not support strided nested tensors on the device."""
    needs("STRIDED_NESTED_TENSORS")


def _jagged(device, dtype=torch.float32, **options):
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(shape, generator=generator).to(dtype).to(device) for shape in ROWS]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, device=device, **options)


def _strided(device):
    generator = torch.Generator().manual_seed(0)
    return torch.nested.nested_tensor(
        [torch.randn(shape, generator=generator).to(device) for shape in ROWS]
    )


def _heads(tensor):
    return tensor.unflatten(-1, [2, 8]).transpose(1, 2)


def _listed(value):
    """Return CPU tensors, with each nested tensor split into its parts."""
    if isinstance(value, torch.Tensor):
        value = value.unbind() if value.is_nested else [value]
        return [each.detach().cpu() for each in value]
    return [each for item in value for each in _listed(item)]


def _assert_matches_cpu(function, **tolerance):
    actual, expected = (_listed(function(device)) for device in ("hpu", "cpu"))
    torch.testing.assert_close(actual, expected, **tolerance)


@pytest.mark.usefixtures("strided")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_of_jagged_tensors_and_its_gradients_match_the_cpu(dtype, scale):
    def trained(device):
        x = _jagged(device, dtype, requires_grad=True)
        q, k, v = _heads(x), _heads(x * 2), _heads(x + 1)
        result = F.scaled_dot_product_attention(q, k, v, scale=scale)
        result.transpose(1, 2).values().square().sum().backward()
        return result, x.grad

    narrow = dtype == torch.bfloat16
    _assert_matches_cpu(trained, **({"rtol": 0.02, "atol": 0.02} if narrow else {}))


@pytest.mark.usefixtures("strided")
def test_attention_over_keys_of_other_lengths_matches_the_cpu():
    def attention(device):
        keys = torch.nested.nested_tensor(
            [torch.ones(rows, 16).cumsum(0).to(device) for rows in (4, 1, 6)], layout=torch.jagged
        )
        return F.scaled_dot_product_attention(*map(_heads, (_jagged(device), keys, keys * 2)))

    _assert_matches_cpu(attention)


@pytest.mark.usefixtures("strided")
@pytest.mark.skipif(is_lazy(), reason="lazy mode does not compile")
def test_compiled_attention_of_jagged_tensors_matches_the_cpu(compile_on_hpu):
    def attention(x):
        return F.scaled_dot_product_attention(*3 * [_heads(x)])

    actual, expected = compile_on_hpu(attention)(_jagged("hpu")), attention(_jagged("cpu"))
    torch.testing.assert_close(_listed(actual), _listed(expected))


@pytest.mark.skipif(is_lazy(), reason="lazy mode does not compile")
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_compiled_model_of_jagged_tensors_matches_the_cpu(compile_on_hpu, trains):
    def computed(device, compiled):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4), torch.nn.LayerNorm(4)
        ).to(device)
        run = compile_on_hpu(model) if compiled else model
        with torch.set_grad_enabled(trains):
            results = [run(_jagged(device)) for _ in range(2)]
        if trains:
            results[1].values().square().sum().backward()
        return [*results, *(each.grad for each in model.parameters() if trains)]

    torch.testing.assert_close(_listed(computed("hpu", True)), _listed(computed("cpu", False)))


OPERATIONS = {
    "linear": lambda x: F.linear(x, torch.linspace(0, 1, 64, device=x.device).view(4, 16)),
    "layer_norm": lambda x: F.layer_norm(x, (16,)),
    "rms_norm": lambda x: F.rms_norm(x, (16,)),
    "softmax over rows": lambda x: F.softmax(x, 1),
    "softmax": lambda x: F.softmax(x, 2),
    "sum over rows": lambda x: x.sum(1),
    "mean": lambda x: x.mean(2, keepdim=True),
    "amax over rows": lambda x: x.amax(1),
    "any": lambda x: (x > 1).any(1),
    "padded": lambda x: x.to_padded_tensor(-1.0),
    "padded integers": lambda x: (x * 9).int().to_padded_tensor(0),
    "padded bools": lambda x: (x > 0).to_padded_tensor(0),
    "batched product": lambda x: torch.bmm(x, torch.ones(3, 16, 2, device=x.device)),
    "product of two": lambda x: x.transpose(1, 2) @ x,
    "concatenation": lambda x: torch.cat([x, x * 2], -1),
    "chunks": lambda x: x.chunk(2, -1),
    "where": lambda x: torch.where(x > 0, x, x * 0),
    "copy": lambda x: torch.zeros_like(x).copy_(x),
    "one part": lambda x: x[1],
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operators_of_jagged_tensors_match_the_cpu(operation):
    _assert_matches_cpu(lambda device: OPERATIONS[operation](_jagged(device)))


@pytest.mark.usefixtures("strided")
@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.to_padded_tensor(0.0),
        lambda x: x.to_padded_tensor(-1.0, (3, 6, 16)),
        lambda x: torch.bmm(x, x.transpose(1, 2)),
        lambda x: torch.softmax(x, -1),
        lambda x: F.linear(x, x[0][:2]) + 1,
        lambda x: F.scaled_dot_product_attention(
            *3 * [x.view(3, -1, 2, 8).transpose(1, 2).contiguous()]
        ),
    ],
    ids=["padded", "padded to a size", "bmm", "softmax", "linear", "attention"],
)
def test_operators_of_strided_nested_tensors_match_the_cpu(operation):
    _assert_matches_cpu(lambda device: operation(_strided(device)))


@pytest.mark.usefixtures("strided")
@pytest.mark.parametrize(
    "mask", [[[1, 1, 0], [1, 0, 0]], [[1, 1, 1], [1, 1, 0]]], ids=["shorter", "as long"]
)
def test_nested_tensor_from_a_mask_matches_the_cpu(mask):
    def from_mask(device):
        padded = torch.arange(12.0).view(2, 3, 2).to(device).requires_grad_()
        nested = torch._nested_tensor_from_mask(padded, torch.tensor(mask).bool().to(device))
        (gradient,) = torch.autograd.grad((nested * 2).values().sum(), padded)
        return nested, gradient

    _assert_matches_cpu(from_mask)


@pytest.mark.usefixtures("strided")
def test_sum_of_a_strided_nested_tensor_is_rejected_in_lazy_mode():
    if not is_lazy():
        _assert_matches_cpu(lambda device: _strided(device).sum(-1, keepdim=True))
        return
    with pytest.raises(NotImplementedError, match=r"aten::sum.* strided layout in lazy mode"):
        _strided("hpu").sum(-1, keepdim=True)


@pytest.mark.usefixtures("strided")
def test_unsupported_operator_of_a_strided_nested_tensor_is_named():
    with pytest.raises(NotImplementedError, match=r"aten::sort.* use layout=torch\.jagged"):
        torch.sort(_strided("hpu"))
