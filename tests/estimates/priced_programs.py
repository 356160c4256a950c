"""Traced programs for tests of operation costs."""

import torch

from hpu_magic.estimates.cost.constants import FITTED
from hpu_magic.estimates.tracing.step import StepOptions, trace_step

nn = torch.nn
PEAK = 432e12 * FITTED.matrix_efficiency["gaudi2"]


def traced(model, *shape, train=False, **options):
    inputs = (torch.empty(*shape, device="meta"),)
    options = StepOptions(train=train, dtype=torch.bfloat16, **options)
    return trace_step(model.to("meta"), inputs, {}, options)


def trained(model, *shape, **options):
    return traced(model, *shape, train=True, **options)


def costs_of(prices):
    """Return the costs of operations that take time."""
    return [cost for cost in prices.operations if cost.seconds]
