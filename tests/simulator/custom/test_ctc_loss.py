"""Test CTC loss against PyTorch in float64: within 1e-4."""

import pytest
import torch
from habana_frameworks.torch.hpex.kernels import CTCLoss
from in_modes import run
from operator_tensors import EAGER, on_device, rejects

hpu_ops = torch.ops.hpu
T, N, C = 12, 3, 5
REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


def log_probs(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=made).log_softmax(-1)


PADDED = torch.tensor([[1, 2, 3, 4], [2, 2, 1, 0], [4, 0, 0, 0]])
JOINED = torch.tensor([1, 2, 3, 4, 2, 2, 1, 4])
INPUTS, LENGTHS = torch.tensor([12, 10, 7]), torch.tensor([4, 3, 1])


def assert_matches_pytorch(
    probs, targets, inputs, lengths, *, blank, reduction, zero_infinity=False
):
    leaf, exact = probs.to("hpu").requires_grad_(), probs.double().requires_grad_()
    moved = on_device((targets, inputs, lengths))
    actual = CTCLoss.apply(leaf, *moved, blank, reduction, zero_infinity)
    expected = torch.nn.functional.ctc_loss(
        exact, targets.long(), inputs.long(), lengths.long(), blank, reduction, zero_infinity
    )
    assert (actual.dtype, actual.device.type) == (torch.float32, "hpu")
    flat = actual.detach().cpu().double().flatten()
    torch.testing.assert_close(flat, expected.detach().flatten(), rtol=1e-4, atol=1e-4)
    weights = torch.arange(1.0, flat.numel() + 1)
    actual.backward(weights.reshape(actual.shape).to("hpu"))
    expected.backward(weights.double().reshape(expected.shape))
    torch.testing.assert_close(leaf.grad.cpu().double(), exact.grad, rtol=1e-4, atol=1e-4)
    return actual


@REDUCTIONS
@pytest.mark.parametrize("targets", [PADDED, JOINED], ids=["padded", "joined"])
@pytest.mark.parametrize("integer", [torch.int64, torch.int32], ids=str)
def test_loss_and_gradient_match_pytorch(targets, integer, reduction):
    probs = log_probs(T, N, C)
    arguments = (each.to(integer) for each in (targets, INPUTS, LENGTHS))
    actual = assert_matches_pytorch(probs, *arguments, blank=0, reduction=reduction)
    assert actual.shape == ((N,) if reduction == "none" else ())


@REDUCTIONS
def test_single_sequence_needs_no_batch_dimension(reduction):
    arguments = log_probs(T, C), torch.tensor([1, 3, 3]), torch.tensor(T), torch.tensor(3)
    actual = assert_matches_pytorch(*arguments, blank=4, reduction=reduction)
    assert actual.shape == ((1,) if reduction == "none" else ())


@REDUCTIONS
def test_impossible_alignment_is_infinite_or_zero(reduction):
    probs, inputs = log_probs(T, N, C), torch.tensor([12, 2, 7])
    arguments = probs, PADDED, inputs, LENGTHS
    assert_matches_pytorch(*arguments, blank=0, reduction=reduction, zero_infinity=True)
    moved = on_device(arguments)
    loss = CTCLoss.apply(*moved, 0, reduction)
    assert torch.isinf(loss.cpu()).any()


def test_alpha_has_room_for_the_longest_padded_target():
    moved = [each.to("hpu") for each in (log_probs(T, N, C), PADDED, INPUTS, LENGTHS - 1)]
    loss, alpha = hpu_ops.ctc_loss_custom(*moved, 0, 1, False)
    assert (loss.shape, alpha.shape) == ((), (T, N, 2 * 4 + 1))
    of_each = torch.logsumexp(alpha.cpu()[11, 0, [5, 6]], 0)
    exact = torch.nn.functional.ctc_loss(
        log_probs(T, N, C), PADDED, INPUTS, LENGTHS - 1, reduction="none"
    )
    assert -of_each.item() == pytest.approx(exact[0].item(), rel=1e-4)


def test_bfloat16_loss_is_computed_in_float32():
    probs = log_probs(T, N, C).bfloat16()
    moved = on_device((probs, PADDED, INPUTS, LENGTHS))
    loss, alpha = hpu_ops.ctc_loss_custom(*moved, 0, 2, False)
    assert (loss.dtype, alpha.dtype) == (torch.bfloat16, torch.bfloat16)
    expected = torch.nn.functional.ctc_loss(
        probs.double(), PADDED, INPUTS, LENGTHS, reduction="sum"
    )
    assert loss.item() == pytest.approx(expected.item(), rel=2**-8)


def test_lengths_may_be_python_sequences():
    probs = log_probs(T, N, C)
    actual = CTCLoss.apply(
        probs.to("hpu"), PADDED.to("hpu"), INPUTS.tolist(), tuple(LENGTHS.tolist())
    )
    expected = torch.nn.functional.ctc_loss(probs, PADDED, INPUTS, LENGTHS)
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"targets": PADDED + 1}, "targets must be classes from 0 to 4, but some are not."),
        ({"targets": PADDED.float()}, "targets and lengths must be integers, but got"),
        ({"targets": PADDED[:2]}, "must have one row for each of 3 sequences, but got 2."),
        ({"inputs": INPUTS + 1}, "input_lengths must be between 0 and 12"),
        ({"inputs": INPUTS[:2]}, "must have one element for each of 3 sequences, but got 2."),
        ({"lengths": -LENGTHS}, "target_lengths must be between 0 and 4"),
        ({"blank": 5}, "blank must be one of 5 classes, but got 5."),
        ({"reduction": 3}, "reduction must be 0 (none), 1 (mean) or 2 (sum), but got 3."),
        ({"targets": JOINED[:5]}, "target_lengths add up to 8, but there are only 5 targets."),
    ],
    ids=str,
)
def test_invalid_loss_is_rejected(changed, message):
    arguments = {
        "targets": PADDED,
        "inputs": INPUTS,
        "lengths": LENGTHS,
        "blank": 0,
        "reduction": 1,
    }
    arguments |= changed
    moved = [arguments[name].to("hpu") for name in ("targets", "inputs", "lengths")]
    probs = log_probs(T, N, C).to("hpu")
    with rejects(message):
        run(
            hpu_ops.ctc_loss_custom,
            probs,
            *moved,
            arguments["blank"],
            arguments["reduction"],
            False,
        )


def test_unknown_reduction_is_rejected():
    moved = [each.to("hpu") for each in (log_probs(T, N, C), PADDED, INPUTS, LENGTHS)]
    with pytest.raises(ValueError, match="is 'max'; use 'none', 'mean' or 'sum'"):
        CTCLoss.apply(*moved, 0, "max")


def everything(probs, targets, inputs, lengths):
    arguments = probs, targets, inputs, lengths
    loss, alpha = hpu_ops.ctc_loss_custom(*arguments, 0, 1, False)
    grad = hpu_ops.ctc_loss_custom_backward(loss, *arguments, loss, alpha, 0, 1, False)
    return loss, alpha, grad


def operands(batch, seed=0):
    rows = torch.arange(batch) % N
    made = log_probs(T, batch, C, seed=seed), PADDED[rows], INPUTS[rows], LENGTHS[rows]
    return on_device(made)


@EAGER
def test_compiled_training_gives_the_gradient_of_eager_mode():
    def loss_of(*arguments):
        return CTCLoss.apply(*arguments, 0, "mean", False)

    grads = []
    for function in (loss_of, torch.compile(loss_of, backend="hpu_backend", fullgraph=True)):
        probs, *rest = operands(3)
        function(probs.requires_grad_(), *rest).backward()
        grads.append(probs.grad.cpu())
    assert grads[0].any()
    assert torch.equal(*grads)
