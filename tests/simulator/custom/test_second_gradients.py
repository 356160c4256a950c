"""Second derivatives are correct, or an error if a backward kernel has none."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.hpex import kernels, normalization  # noqa: E402
from habana_frameworks.torch.hpex.kernels import (  # noqa: E402
    RotaryPosEmbeddingHelper as rotary,
)
from habana_frameworks.torch.hpex.kernels.Softmax import RaggedSoftmax  # noqa: E402
from trained_weights import tensors  # noqa: E402


def on_device(*shape):
    return tensors(shape)[0].to("hpu")


def ctc(given):
    targets = torch.ones(2, 1, dtype=torch.int32, device="hpu")
    return kernels.CTCLoss.apply(given.log_softmax(-1), targets, [3, 3], [1, 1])


WITHOUT = {
    "attention": lambda q: kernels.FusedSDPA.apply(q, q, q, None, 0.0, False, None, "None", True),
    "attention, kept": lambda q: kernels.FusedSDPA.apply(
        q, q, q, None, 0.0, False, None, "None", False
    ),
    "PySDPA": lambda q: kernels.PySDPA.apply(q[None], q[None], q[None], True),
    "RMS norm": lambda x: normalization.FusedRMSNorm.apply(x, on_device(4), 1e-6),
    "rotary 1": lambda p: rotary.RotaryPosEmbeddingHelperV1.apply(
        p, on_device(3, 4), on_device(3, 4), 0
    ),
    "rotary 2": lambda p: rotary.RotaryPosEmbeddingHelperV2.apply(
        p[:, None], on_device(3, 4), on_device(3, 4), torch.arange(3, device="hpu").expand(2, 3)
    ),
    "rotary 3": lambda p: rotary.RotaryPosEmbeddingHelperV3.apply(
        p[:, :, None], on_device(2, 2, 2)
    ),
    "CTC loss": lambda x: ctc(x.transpose(0, 1)),
}


def _backward(total, given):
    total.backward()


def _backward_of_inputs(total, given):
    total.backward(inputs=[given])


def _grad(total, given):
    torch.autograd.grad(total, given)


@pytest.mark.parametrize("differentiate", [_backward, _backward_of_inputs, _grad])
@pytest.mark.parametrize("loss", [torch.sum, lambda out: out.square().sum()], ids=["sum", "square"])
@pytest.mark.parametrize("name", WITHOUT)
def test_a_backward_kernel_is_differentiated_once(name, loss, differentiate):
    given = on_device(2, 3, 4).requires_grad_()
    value = loss(WITHOUT[name](given))
    (gradient,) = torch.autograd.grad(value, given, create_graph=True)
    # The penalty is part of a total that has a gradient without it.
    total = value + gradient.square().sum()
    with pytest.raises(RuntimeError, match="has first derivatives only, but create_graph=True"):
        differentiate(total, given)


def test_the_gradient_of_an_earlier_tensor_is_differentiated_once():
    given, weight = (on_device(2, 4).requires_grad_() for _ in range(2))
    value = normalization.FusedRMSNorm.apply(given * weight, on_device(4), 1e-6).sum()
    (gradient,) = torch.autograd.grad(value, given, create_graph=True)
    with pytest.raises(RuntimeError, match="FusedRMSNorm has first derivatives only"):
        torch.autograd.grad(value + gradient.square().sum(), weight)


def custom(x):
    return kernels.CustomSoftmax.apply(x, 0)


def ragged(x):
    counts = torch.full((x.shape[0],), x.shape[-1], dtype=torch.int32, device=x.device)
    return RaggedSoftmax.apply(x[:, None, None], -1, False, counts)[:, 0, 0]


@pytest.mark.parametrize("softmax", [custom, ragged])
def test_a_softmax_has_second_gradients(softmax):
    given = on_device(3, 5)
    found, expected = given.clone().requires_grad_(), given.cpu().double().requires_grad_()
    for x, function in ((found, softmax), (expected, lambda x: x.softmax(-1))):
        (gradient,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
    torch.testing.assert_close(found.grad.cpu().double(), expected.grad, rtol=1e-4, atol=1e-5)
