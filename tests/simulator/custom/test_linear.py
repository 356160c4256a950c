"""Test the linear and matmul operators that a flag enables: within 1e-5 of float64."""

import sys
from pathlib import Path

import torch
from operator_tensors import EAGER

pytestmark = EAGER

WITH_FLAG = """
import torch
ops = torch.ops.hpu

def near(actual, expected):
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-5, atol=1e-5)

def all_near(operator, exact, operands, *rest):
    leaves = [each.double().requires_grad_() for each in operands]
    expected = exact(*leaves)
    moved = [each.to("hpu") for each in operands]
    near(operator(*moved), expected.detach())
    grad = torch.randn(expected.shape)
    expected.backward(grad.double())
    return moved, grad.to("hpu"), [leaf.grad for leaf in leaves]

x, weight, bias = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)
moved, grad, exact = all_near(ops.linear, torch.nn.functional.linear, (x, weight, bias))
near(ops.linear(*moved[:2]), (x @ weight.T).double())
for mask in ((True, True, True), (False, True, False)):
    for actual, expected, requested in zip(
        ops.linear_backward(moved[0], grad, moved[1], mask), exact, mask, strict=True
    ):
        near(actual, expected) if requested else print(actual)

for a, b in [((2, 3, 4), (4, 5)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (2, 3, 4)),
             ((2, 1, 3, 4), (5, 4, 2))]:
    moved, grad, exact = all_near(ops.matmul, torch.matmul, (torch.randn(a), torch.randn(b)))
    for actual, expected in zip(ops.matmul_bwd(grad, *moved), exact, strict=True):
        assert actual.shape == expected.shape
        near(actual, expected)

linear = torch.compile(ops.linear, backend="hpu_backend", fullgraph=True)
near(linear(*(each.to("hpu") for each in (x, weight, bias))), (x @ weight.T + bias).double())
namespace = {"torch": torch}
exec(WRONG_OPERATORS, namespace)
print(namespace["wrong"], sum("linear" in name for name in namespace["declared"].values()))
"""


def test_flag_enables_linear_and_matmul_with_their_backward(forked_script):
    sys.path.insert(0, str(Path(__file__).parents[1] / "face"))
    from test_vendor_api import WRONG_OPERATORS

    code = f"WRONG_OPERATORS = {WRONG_OPERATORS!r}\n{WITH_FLAG}"
    out = forked_script(code, simulated=True, PT_HPU_OVERRIDE_LINEAR_MATMUL_EAGER="1")
    assert out.splitlines()[-3:] == ["None", "None", "[] 2"]


def test_operators_are_absent_without_the_flag():
    assert not any(hasattr(torch.ops.hpu, name) for name in ("linear", "matmul", "matmul_bwd"))
