"""Second derivatives are correct, or raise an error if a backward kernel has none."""

import pytest
import torch
from habana_frameworks.torch.hpex import kernels, normalization
from habana_frameworks.torch.hpex.kernels import RotaryPosEmbeddingHelper as rotary
from habana_frameworks.torch.hpex.kernels.Softmax import RaggedSoftmax
from operator_tensors import random_tensor


def on_device(*shape):
    return random_tensor(*shape).to("hpu")


def ctc(x):
    targets = torch.ones(2, 1, dtype=torch.int32, device="hpu")
    return kernels.CTCLoss.apply(x.log_softmax(-1), targets, [3, 3], [1, 1])


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


DIFFERENTIATED = {
    "backward": lambda total, leaf: total.backward(),
    "backward of inputs": lambda total, leaf: total.backward(inputs=[leaf]),
    "grad": torch.autograd.grad,
}


@pytest.mark.parametrize("differentiate", DIFFERENTIATED.values(), ids=DIFFERENTIATED)
@pytest.mark.parametrize("loss", [torch.sum, lambda out: out.square().sum()], ids=["sum", "square"])
@pytest.mark.parametrize("name", WITHOUT)
def test_backward_kernel_rejects_a_second_derivative(name, loss, differentiate):
    leaf = on_device(2, 3, 4).requires_grad_()
    value = loss(WITHOUT[name](leaf))
    (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
    # The total has a gradient even without the penalty.
    total = value + gradient.square().sum()
    with pytest.raises(RuntimeError, match="only first derivatives, but create_graph=True"):
        differentiate(total, leaf)


def test_second_derivative_of_an_earlier_tensor_is_rejected():
    leaf, weight = (on_device(2, 4).requires_grad_() for _ in range(2))
    value = normalization.FusedRMSNorm.apply(leaf * weight, on_device(4), 1e-6).sum()
    (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="FusedRMSNorm supports only first derivatives"):
        torch.autograd.grad(value + gradient.square().sum(), weight)


def ragged(x):
    counts = torch.full((x.shape[0],), x.shape[-1], dtype=torch.int32, device=x.device)
    return RaggedSoftmax.apply(x[:, None, None], -1, False, counts)[:, 0, 0]


@pytest.mark.parametrize(
    "softmax", [lambda x: kernels.CustomSoftmax.apply(x, 0), ragged], ids=["custom", "ragged"]
)
def test_softmax_has_second_derivatives(softmax):
    leaf = on_device(3, 5)
    actual, expected = leaf.clone().requires_grad_(), leaf.cpu().double().requires_grad_()
    for x, function in ((actual, softmax), (expected, lambda x: x.softmax(-1))):
        (gradient,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
    torch.testing.assert_close(actual.grad.cpu().double(), expected.grad, rtol=1e-4, atol=1e-5)
