"""Weights for optimizer tests, on the device and in float64."""

import itertools

import torch
from habana_frameworks.torch import core as htcore
from operator_tensors import random_tensors

SHAPES = ((3, 4), (5,), ())


def assert_all_near(actual, expected, tolerance=None):
    htcore.mark_step()
    for one, other in zip(actual, expected, strict=True):
        within = tolerance or (1e-5 if one.dtype is torch.float32 else 2e-2)
        torch.testing.assert_close(
            one.detach().cpu().double(), other.detach().double(), rtol=within, atol=within
        )


class Trained:
    """Weights on the device and in float64, with equal gradients in each step."""

    def __init__(self, *shapes, dtype=torch.float32):
        start = random_tensors(*(shapes or SHAPES), dtype=dtype)
        self.weights = [each.to("hpu").requires_grad_() for each in start]
        self.exact = [each.double().requires_grad_() for each in start]
        self.seeds = itertools.count(1)

    def new_gradients(self):
        shapes = [each.shape for each in self.exact]
        fresh = random_tensors(*shapes, dtype=self.weights[0].dtype, seed=next(self.seeds))
        for weight, one, grad in zip(self.weights, self.exact, fresh, strict=True):
            weight.grad, one.grad = grad.to("hpu"), grad.double()
