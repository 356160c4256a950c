"""Weights that the tests of optimizers train, on the device and in float64."""

import itertools

import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch.utils.internal import is_lazy

SHAPES = ((3, 4), (5,), ())
EAGER = pytest.mark.skipif(is_lazy(), reason="operators of eager mode")
LAZY = pytest.mark.skipif(not is_lazy(), reason="lazy mode's own")


def tensors(*shapes, dtype=torch.float32, seed=0):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=made).to(dtype) for shape in shapes]


def on_device(values):
    return [each.to("hpu") for each in values]


def assert_near(found, expected, tolerance=None):
    htcore.mark_step()
    for one, other in zip(found, expected, strict=True):
        within = tolerance or (1e-5 if one.dtype is torch.float32 else 2e-2)
        torch.testing.assert_close(
            one.detach().cpu().double(), other.detach().double(), rtol=within, atol=within
        )


class Trained:
    """Weights on the device and in float64, and the same gradients for both in each step."""

    def __init__(self, *shapes, dtype=torch.float32):
        start = tensors(*(shapes or SHAPES), dtype=dtype)
        self.weights = [each.to("hpu").requires_grad_() for each in start]
        self.exact = [each.double().requires_grad_() for each in start]
        self.seeds = itertools.count(1)

    def new_gradients(self):
        shapes = [each.shape for each in self.exact]
        fresh = tensors(*shapes, dtype=self.weights[0].dtype, seed=next(self.seeds))
        for weight, one, grad in zip(self.weights, self.exact, fresh, strict=True):
            weight.grad, one.grad = grad.to("hpu"), grad.double()
