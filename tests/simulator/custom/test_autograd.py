"""What autograd sees of the vendor's operators."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.hpex.normalization import FusedClipNorm  # noqa: E402
from habana_frameworks.torch.hpex.optimizers import FusedAdamW, FusedLamb, FusedSGD  # noqa: E402


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
def test_a_backward_through_weights_of_before_a_step_is_refused(optimizer):
    weight = torch.ones(3, device="hpu", requires_grad=True)
    weight.grad = torch.ones(3, device="hpu")
    loss = (weight * weight).sum()
    optimizer([weight]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert weight.grad.tolist() == [1.0] * 3


def test_clipping_counts_as_a_write_of_the_gradients():
    weight = torch.ones(3, device="hpu", requires_grad=True)
    weight.grad = torch.full((3,), 4.0, device="hpu")
    before = weight.grad._version
    FusedClipNorm([weight], 1.0).clip_norm([weight])
    assert weight.grad._version > before
    torch.testing.assert_close(weight.grad.norm().item(), 1.0, rtol=1e-3, atol=1e-3)
