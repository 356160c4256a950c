"""Test operators that accumulate gradients and permute weights."""

import pytest
import torch
from operator_tensors import EAGER

hpu_ops = torch.ops.hpu
pytestmark = EAGER


def variables():
    return [torch.ones(shape, device="hpu", requires_grad=True) for shape in ((3, 2), (4,))]


def gradients(value):
    return [torch.full(shape, value, device="hpu") for shape in ((3, 2), (4,))]


def test_gradients_are_set_first_and_accumulated_later():
    weights, first = variables(), gradients(1.0)
    assert hpu_ops.accumulate_grads_(weights, first) is None
    assert [weight.grad is grad for weight, grad in zip(weights, first, strict=True)] == [True] * 2
    hpu_ops.accumulate_grads_(weights, gradients(2.5))
    assert [weight.grad.unique().tolist() for weight in weights] == [[3.5], [3.5]]
    assert weights[0].grad is first[0]  # accumulated in place


def test_incompatible_lists_are_rejected_without_effect():
    weights = variables()
    with pytest.raises(RuntimeError) as error:
        hpu_ops.accumulate_grads_(weights, gradients(1.0)[:1])
    message = "Inputs to hpu::accumulate_grads_ must be of the same size, got: 2 and 1"
    assert message in str(error.value)
    with pytest.raises(RuntimeError, match="needs gradients with the shapes of their variables"):
        hpu_ops.accumulate_grads_(weights, gradients(1.0)[:1] * 2)
    assert [weight.grad for weight in weights] == [None, None]
    weights[0].grad = torch.zeros(3, 2, device="hpu")
    with pytest.raises(RuntimeError, match="but variable 1 has none"):
        hpu_ops.accumulate_grads_(weights, gradients(1.0))
    assert not weights[0].grad.any()


def test_compiled_function_accumulates_gradients():
    @torch.compile(backend="hpu_backend")
    def step(weights, grads):
        doubled = [grad * 2 for grad in grads]
        hpu_ops.accumulate_grads_(weights, doubled)
        return doubled[0] + 1

    weights = variables()
    for expected in (2.0, 4.0):
        assert step(weights, gradients(1.0)).unique().tolist() == [3.0]
        assert [weight.grad.unique().tolist() for weight in weights] == [[expected]] * 2


def test_weight_permutation_has_no_visible_effect():
    weight = torch.randn(4, 3, 2, 2, device="hpu")
    assert hpu_ops.weight_permutation(weight) is weight
    compiled = torch.compile(
        lambda weight, x: torch.conv2d(x, hpu_ops.weight_permutation(weight)),
        backend="hpu_backend",
        fullgraph=True,
    )
    x = torch.randn(2, 3, 5, 5, device="hpu")
    torch.testing.assert_close(compiled(weight, x).cpu(), torch.conv2d(x.cpu(), weight.cpu()))
    same = torch.compile(hpu_ops.weight_permutation, backend="hpu_backend", fullgraph=True)(weight)
    assert same.data_ptr() == weight.data_ptr()


def test_cpu_tensor_is_rejected():
    with pytest.raises((RuntimeError, NotImplementedError)):
        hpu_ops.weight_permutation(torch.ones(2))
