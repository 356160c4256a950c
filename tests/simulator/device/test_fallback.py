"""Operators without a kernel in the vendor's bridge run on the CPU, and are counted or rejected."""

import pytest
import torch
from habana_frameworks.torch import _bridge

pytestmark = pytest.mark.once

PROGRAM = """
    import torch
    from habana_frameworks.torch.hpu.metrics import metric_global
    matrix = torch.eye(3, device="hpu")
    try:
        print(torch.linalg.eigvals(matrix).real.sum().item())
    except RuntimeError as error:
        print(error)
    print((matrix @ matrix).sum().item())
    print(dict(metric_global("cpu_fallback").stats()))
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_fallback_is_counted_per_operator(forked_script, lazy):
    values, product, stats = forked_script(
        PROGRAM, simulated=True, PT_HPU_LAZY_MODE=lazy
    ).splitlines()
    assert (values, product) == ("3.0", "3.0")
    counted = eval(stats)
    assert counted["FallbackOps"] == {"aten::_linalg_eigvals": 1}
    assert counted["TotalNumber"] == 1


@pytest.mark.parametrize("lazy", ["0", "1"])
@pytest.mark.parametrize("allowed", ["none", "nonzero,unique"])
def test_forbidden_fallback_raises_the_vendors_error(forked_script, lazy, allowed):
    refusal, product, stats = forked_script(
        PROGRAM, simulated=True, PT_HPU_LAZY_MODE=lazy, PT_HPU_PLACE_ON_CPU=allowed
    ).splitlines()
    assert refusal == "aten::_linalg_eigvals is not yet supported on HPU."
    assert product == "3.0"
    assert eval(stats)["TotalNumber"] == 0


def test_listed_operator_may_fall_back(forked_script):
    values, _, _ = forked_script(
        PROGRAM, simulated=True, PT_HPU_PLACE_ON_CPU="_linalg_eigvals,nonzero"
    ).splitlines()
    assert values == "3.0"


WAITING = """
    import torch
    import hpu_magic
    rows = torch.ones(3, 4).to("hpu")
    with hpu_magic.ledger() as costs:
        for _ in range(2):
            torch.renorm(rows, p=2, dim=0, maxnorm=1.0)
    entries = [(entry.kind, entry.name, entry.count) for entry in costs.entries]
    print([entry for entry in entries if entry[0] != "compilation"])
    print(costs.synchronizations)
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_fallback_causes_a_host_synchronization(forked_script, lazy):
    """The CPU needs the inputs before it can start."""
    causes, waits = forked_script(WAITING, simulated=True, PT_HPU_LAZY_MODE=lazy).splitlines()[-2:]
    assert eval(causes) == [
        ("cpu fallback", "aten::renorm.out", 2),
        ("host synchronization", "aten::renorm.out", 2),
    ]
    assert waits == "2"


SIZED_BY_VALUES = """
import torch, hpu_magic
x = torch.arange(4.0).to("hpu")
mask = x > 1
torch.hpu.synchronize()
with hpu_magic.ledger() as costs:
    mask.nonzero(), x[mask], x.masked_select(mask), x[mask.long()]
    x[mask], x[mask.long()], x[x > 0] = x[:2].clone(), 1, 0
    x.equal(x)
print([(entry.name, entry.count) for entry in costs.entries if "synch" in entry.kind])
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_host_reads_sizes_and_results_that_depend_on_values(forked_script, lazy):
    reads = forked_script(SIZED_BY_VALUES, simulated=True, PT_HPU_LAZY_MODE=lazy)
    assert sorted(eval(reads.splitlines()[-1])) == [
        *([("aten::_index_put_impl_", 1)] if lazy == "0" else []),
        ("aten::equal", 1),
        ("aten::index.Tensor", 1),
        ("aten::masked_select", 1),
        ("aten::nonzero", 1),
    ]


# PyTorch has these variants only for named devices, or implements them through the operator without
# out=. They have no decomposition that the kernels could hide.
FOR_NAMED_DEVICES = {
    "aten::_unique2.out",
    "aten::mode.values",
    "aten::_nested_view_from_buffer",
    "aten::_nested_from_padded",
    "aten::_nested_tensor_from_mask",
}


def test_engine_kernels_are_limited_to_operators_of_the_card():
    """An additional kernel would hide PyTorch's decomposition into operators that a card has."""
    on_the_card = {f"aten::{name}" for name in _bridge._device_operators()}
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("HPU")
    kernels = {name for name in registered if name.startswith("aten::")}  # without FSDP's operators
    assert {"aten::add.Tensor", "aten::cat", "aten::empty.memory_format"} <= kernels
    computing = {name for name in kernels if "Tensor" in returned_by(name)}
    assert computing - on_the_card == FOR_NAMED_DEVICES


def returned_by(name):
    schema = torch._C._get_schema(*name.partition(".")[::2])
    return " ".join(str(each.type) for each in schema.returns)


DECOMPOSED = """
    import torch
    from habana_frameworks.torch.hpu.metrics import metric_global

    def check(function, *inputs):
        leaves = [each.clone().requires_grad_() for each in inputs]
        moved = [each.detach().to("hpu").requires_grad_() for each in inputs]
        for each in (function(*leaves), function(*moved)):
            each.square().sum().backward()
        torch.testing.assert_close(function(*moved).cpu(), function(*leaves), rtol=0, atol=0)
        for leaf, other in zip(leaves, moved):
            torch.testing.assert_close(other.grad.cpu(), leaf.grad)

    torch.manual_seed(0)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for dim in (0, 1, 2, -1):
        check(lambda a, b: torch.stack([a, b, a], dim), x, y)
    check(torch.nn.functional.silu, x)
    out = torch.empty(0, device="hpu")
    torch.stack([x.to("hpu"), y.to("hpu")], 1, out=out)
    print(torch.equal(out.cpu(), torch.stack([x, y], 1)))
    print(dict(metric_global("cpu_fallback").stats()))
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_decomposed_operator_does_not_fall_back(forked_script, lazy):
    equal, stats = forked_script(DECOMPOSED, simulated=True, PT_HPU_LAZY_MODE=lazy).splitlines()
    assert equal == "True"
    assert eval(stats) == {"TotalNumber": 0, "FallbackOps": {}}
