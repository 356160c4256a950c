"""Autograd detects in-place updates by the vendor's operators."""

import pytest
import torch
from habana_frameworks.torch.hpex.normalization import FusedClipNorm
from habana_frameworks.torch.hpex.optimizers import FusedAdamW, FusedLamb, FusedSGD


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda parameters: FusedAdamW(parameters, lr=0.5),
        lambda parameters: FusedLamb(parameters, lr=0.5),
        lambda parameters: FusedSGD(parameters, lr=0.5),
        lambda parameters: FusedSGD(parameters, lr=0.5, momentum=0.9),
    ],
    ids=["adamw", "lamb", "sgd", "momentum"],
)
def test_backward_through_weights_that_a_step_updated_is_rejected(optimizer):
    weight = torch.ones(3, device="hpu", requires_grad=True)
    weight.grad = torch.ones(3, device="hpu")
    loss = (weight * weight).sum()
    optimizer([weight]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert weight.grad.tolist() == [1.0] * 3


def test_clipping_changes_the_version_of_the_gradients():
    weight = torch.ones(3, device="hpu", requires_grad=True)
    weight.grad = torch.full((3,), 4.0, device="hpu")
    before = weight.grad._version
    FusedClipNorm([weight], 1.0).clip_norm([weight])
    assert weight.grad._version > before
    torch.testing.assert_close(weight.grad.norm().item(), 1.0, rtol=1e-3, atol=1e-3)
