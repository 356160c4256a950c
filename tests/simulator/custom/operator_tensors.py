"""Tensors for operators, and their comparison with float64 references."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from habana_frameworks.torch.utils.internal import is_lazy

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
EAGER = pytest.mark.skipif(is_lazy(), reason="operators of eager mode")
LAZY = pytest.mark.skipif(not is_lazy(), reason="operators of lazy mode")
FORMATS = pytest.mark.parametrize("fp8", [E5M2, E4M3], ids=["E5M2", "E4M3"])
RECOMPUTE = pytest.mark.parametrize("recompute", [True, False], ids=["recompute", "keep"])


def random_tensors(
    *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0
) -> list[torch.Tensor]:
    """Return a tensor of normally distributed numbers for each shape."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def random_tensor(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return random_tensors(shape, dtype=dtype, seed=seed)[0]


def on_device(values: Iterable[Any]) -> list[Any]:
    """Return the values with all tensors on the device."""
    return [value.to("hpu") if isinstance(value, torch.Tensor) else value for value in values]


def rejects(message: str, *errors: type[Exception]) -> Any:
    """Expect an error, by default a RuntimeError, whose message contains the text."""
    return pytest.raises(errors or RuntimeError, match=re.escape(message))


def assert_matches(
    actual: torch.Tensor,
    expected: torch.Tensor,
    dtype: torch.dtype,
    exact: float = 1e-5,
    reduced: float = 2e-2,
) -> None:
    """Compare with a float64 reference, at the tolerance of float32 or of a reduced type."""
    assert (actual.dtype, actual.shape, actual.device.type) == (dtype, expected.shape, "hpu")
    tolerance = exact if dtype is torch.float32 else reduced
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def assert_differentiates(
    function: Callable[..., torch.Tensor],
    reference: Callable[..., torch.Tensor],
    *tensors: torch.Tensor,
    gradients: float | None = None,
    **tolerances: float,
) -> None:
    """Compare a result of the first tensor's type and all gradients with a float64 reference.

    ``gradients`` is a separate tolerance for the gradients.
    """
    dtype = tensors[0].dtype
    leaves = [each.to("hpu").requires_grad_() for each in tensors]
    exact = [each.double().requires_grad_() for each in tensors]
    actual, expected = function(*leaves), reference(*exact)
    grad = torch.randn_like(expected).to(dtype)
    actual.backward(grad.to("hpu"))
    expected.backward(grad.double())
    assert_matches(actual.detach(), expected.detach(), dtype, **tolerances)
    if gradients is not None:
        tolerances = {"exact": gradients, "reduced": gradients}
    for leaf, one in zip(leaves, exact, strict=True):
        assert_matches(leaf.grad, one.grad, leaf.dtype, **tolerances)
