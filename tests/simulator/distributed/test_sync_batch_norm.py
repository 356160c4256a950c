"""Test SyncBatchNorm on two cards against BatchNorm on the CPU with the whole batch."""

import pytest
import torch
import torch.distributed as dist
from ranks import join
from torch import nn

CHANNELS = 4
EXACT = {"rtol": 1e-4, "atol": 1e-5}
ROUNDED = {"rtol": 2e-2, "atol": 3e-2}
CASES = {
    "pictures": ((8, CHANNELS, 6, 5), torch.float32, torch.contiguous_format, EXACT),
    "channels last": ((8, CHANNELS, 6, 5), torch.float32, torch.channels_last, EXACT),
    "bfloat16": ((8, CHANNELS, 6, 5), torch.bfloat16, torch.contiguous_format, ROUNDED),
    "rows": ((8, CHANNELS), torch.float32, torch.contiguous_format, EXACT),
}
SHARES = slice(0, 3), slice(3, 8)
"""The rows of each rank; their numbers differ."""


def compare(case, affine=True, tracked=True, is_compiled=False):
    """Normalize two batches, and compare results, gradients and running statistics."""
    shape, dtype, layout, tolerances = CASES[case]
    torch.manual_seed(0)
    options = {"affine": affine, "track_running_stats": tracked}
    kind = nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d
    whole = kind(CHANNELS, **options).double()
    if affine:
        nn.init.uniform_(whole.weight, 0.5, 2)
        nn.init.uniform_(whole.bias)
    shared = nn.SyncBatchNorm.convert_sync_batchnorm(kind(CHANNELS, **options))
    shared.load_state_dict(whole.state_dict())
    shared.to("hpu")
    normalize = torch.compile(shared, backend="hpu_backend") if is_compiled else shared
    rows = SHARES[dist.get_rank()]

    def check(found, expected):
        torch.testing.assert_close(found.cpu().double(), expected.double(), **tolerances)

    for _ in range(2):
        values, slopes = torch.randn(shape), torch.randn(shape)
        x = values.double().requires_grad_()
        y = whole(x)
        y.backward(slopes.double())
        own = values[rows].to("hpu", dtype).contiguous(memory_format=layout).requires_grad_()
        result = normalize(own)
        result.backward(slopes[rows].to("hpu", dtype))
        assert (result.dtype, own.grad.dtype) == (dtype, dtype)
        assert result.is_contiguous(memory_format=layout)
        check(result, y[rows])
        check(own.grad, x.grad[rows])
    for mine, reference in zip(shared.parameters(), whole.parameters(), strict=True):
        gradient = mine.grad.clone()
        dist.all_reduce(gradient)
        check(gradient, reference.grad)
    for mine, reference in zip(shared.buffers(), whole.buffers(), strict=True):
        check(mine, reference)
    shared.eval()
    whole.eval()
    if tracked:
        check(shared(own), whole(x)[rows])


@pytest.mark.parametrize("case", CASES)
def test_batch_of_two_cards_equals_the_whole_batch(pair, case):
    pair(compare, case)


def test_without_weights_or_running_statistics(pair):
    pair(compare, "pictures", False, False)


def test_compiled(server):
    ranks = server.start(2)
    ranks(join)
    ranks(compare, "pictures", True, True, True)
    ranks.close()


def test_frozen_weights_or_input(pair):
    pair(partial_gradients)


def partial_gradients():
    """Train only the weights, and only the input; both ranks have the same batch."""
    batch = torch.randn(4, CHANNELS, 3, 3, generator=torch.Generator().manual_seed(0))
    norm, reference = nn.SyncBatchNorm(CHANNELS).to("hpu"), nn.BatchNorm2d(CHANNELS)
    norm(batch.to("hpu")).pow(3).sum().backward()
    reference(batch).pow(3).sum().backward()
    torch.testing.assert_close(norm.weight.grad.cpu(), reference.weight.grad, **EXACT)
    norm.requires_grad_(False)
    own, expected = batch.to("hpu").requires_grad_(), batch.clone().requires_grad_()
    norm(own).pow(3).sum().backward()
    reference(expected).pow(3).sum().backward()
    torch.testing.assert_close(own.grad.cpu(), expected.grad, **EXACT)


def test_rank_without_samples(pair):
    pair(one_rank_has_samples)


def one_rank_has_samples():
    """Normalize a batch whose samples are all on the second rank."""
    batch = torch.randn(6, CHANNELS, 3, 3, generator=torch.Generator().manual_seed(0))
    norm, reference = nn.SyncBatchNorm(CHANNELS).to("hpu"), nn.BatchNorm2d(CHANNELS)
    own = batch[:0] if dist.get_rank() == 0 else batch
    result = norm(own.to("hpu").requires_grad_())
    result.sum().backward()
    expected = reference(batch)
    torch.testing.assert_close(result.cpu(), expected[: len(own)], **EXACT)
    torch.testing.assert_close(norm.running_var.cpu(), reference.running_var, **EXACT)
