"""CPU tensors among the operands: eager mode rejects them, lazy mode moves them to the device."""

import pytest
import torch
from habana_frameworks.torch import hpu
from habana_frameworks.torch.utils.internal import is_lazy
from torch.nn import functional as F

lazy_only = pytest.mark.skipif(not is_lazy(), reason="eager mode rejects CPU operands")

# Operations on a device tensor (3 x 3) and a CPU tensor of the same shape
MIXED = {
    "add": lambda x, y: x + y,
    "add_swapped": lambda x, y: y + x,
    "divide": lambda x, y: x / y,
    "compare": lambda x, y: x > y,
    "maximum": torch.maximum,
    "addcmul": lambda x, y: torch.addcmul(x, y, x),
    "add_": lambda x, y: x.add_(y),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 1, 0.0),
    "mm": lambda x, y: x @ y,
    "mm_swapped": lambda x, y: y @ x,
    "linear": lambda x, y: F.linear(x, y, y[0]),
    "cat": lambda x, y: torch.cat([y, x]),
    "stack": lambda x, y: torch.stack([x, y, x]),
    "where": lambda x, y: torch.where(y > 1, x, y),
    "index": lambda x, y: x[y[0].long() % 3],
    "index_by_a_mask": lambda x, y: x[y > 1],
    "gather": lambda x, y: x.gather(0, y.long() % 3),
    "index_put_": lambda x, y: x.index_put_((y[0].long() % 1,), y[1]),
    "embedding": lambda x, y: F.embedding(y.long() % 3, x),
    "foreach": lambda x, y: torch._foreach_add([x, x], [y, y])[1],
    "lerp": lambda x, y: torch.lerp(x, y, y),
    "lerp_": lambda x, y: x.lerp_(y, 0.5),
    "index_add_": lambda x, y: x.index_add_(0, y[0].long() % 3, y),
    "scatter_add": lambda x, y: torch.scatter_add(x, 0, y.long() % 3, y),
    "atan2": lambda x, y: torch.atan2(y, x),
    "isin": lambda x, y: torch.isin(x, y),
    "bitwise_and": lambda x, y: x.bool() & y.bool(),
    "equal": lambda x, y: torch.tensor(torch.equal(x, y), device=x.device),
    "loss": lambda x, y: F.cross_entropy(x, y[0].long() % 3),
}


def operands():
    return torch.arange(9.0).view(3, 3), torch.tensor([[1.0, 4, 2], [3, 1, 2], [0.5, 1, 7]])


@lazy_only
@pytest.mark.parametrize("name", MIXED)
def test_lazy_mode_moves_a_cpu_operand(name):
    x, y = operands()
    result = MIXED[name](x.to("hpu"), y)
    assert result.device.type == "hpu"
    expected = MIXED[name](x, y)
    assert (result.dtype, result.stride()) == (expected.dtype, expected.stride())
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0)


@pytest.mark.skipif(is_lazy(), reason="lazy mode moves CPU operands")
@pytest.mark.parametrize(
    "name", ["add", "maximum", "add_", "mm", "cat", "stack", "where", "lerp", "index_add_"]
)
def test_eager_mode_rejects_a_cpu_operand(name):
    x, y = operands()
    with pytest.raises(
        RuntimeError, match=r"on the HPU device, but found .*input\[idx=\d\] on cpu"
    ):
        MIXED[name](x.to("hpu"), y)


@lazy_only
def test_cpu_operand_gets_no_gradient():
    """The move is invisible to autograd, which therefore rejects the gradient's device."""
    x, y = (each.requires_grad_() for each in operands())
    on_hpu = x.detach().to("hpu").requires_grad_()
    total = (on_hpu * y).sum()
    with pytest.raises(RuntimeError, match="expected device cpu but got hpu:0"):
        total.backward()
    (on_hpu * y.to("hpu")).sum().backward()
    torch.testing.assert_close(y.grad, x.detach(), rtol=0, atol=0)
    torch.testing.assert_close(on_hpu.grad.cpu(), y.detach(), rtol=0, atol=0)


@lazy_only
def test_cpu_operand_is_read_at_the_call():
    x, y = operands()
    on_hpu = x.to("hpu")
    result = on_hpu + y
    y.zero_()
    mask = torch.tensor([True, False, True])
    first = on_hpu[mask]
    mask.logical_not_()
    assert (first.shape, on_hpu[mask].shape) == ((2, 3), (1, 3))
    torch.testing.assert_close(result.cpu(), x + operands()[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    "write",
    [
        lambda host, x: torch.add(x, x, out=host),
        lambda host, x: host.add_(x),
        lambda host, x: torch.cat([x, x], out=host),
        lambda host, x: torch.max(x, 0, out=(host, torch.empty(3, dtype=torch.long))),
    ],
    ids=["out", "in_place", "cat", "two"],
)
def test_cpu_tensor_is_rejected_as_output(write):
    host = torch.zeros(3, 3)
    message = "Got a non-HPU tensor, expecting an HPU tensor" if is_lazy() else "on cpu"
    with pytest.raises(RuntimeError, match=message):
        write(host, torch.ones(3, 3, device="hpu"))
    assert host.tolist() == [[0.0] * 3] * 3


@lazy_only
def test_cpu_operand_is_constant_in_a_graph():
    x, y = operands()
    static = x.to("hpu")
    graph = hpu.HPUGraph()
    with hpu.graph(graph):
        result = torch.cat([static + y, y])
    kept = y.clone()
    y.zero_()
    static.copy_(x * 2)
    graph.replay()
    torch.testing.assert_close(result.cpu(), torch.cat([x * 2 + kept, kept]), rtol=0, atol=0)


@lazy_only
def test_scalar_cpu_index_is_read_on_each_call():
    x = torch.ones(2, device="hpu")
    shapes = [tuple(x[torch.tensor(flag)].shape) for flag in (True, False, True)]
    assert shapes == [(1, 2), (0, 2), (1, 2)]
