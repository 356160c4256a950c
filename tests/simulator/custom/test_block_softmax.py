"""Test softmax over the blocks of a KV cache against the softmax of each sequence."""

import torch
from in_modes import run
from operator_tensors import on_device, rejects

hpu_ops = torch.ops.hpu
HEADS, BLOCK = 2, 4
GROUPS = torch.tensor([0, 1, 0, 1, 1, -1])  # the last block is padding


def scores():
    made = torch.Generator().manual_seed(0)
    return 3 * torch.randn(len(GROUPS), HEADS, 1, 1, BLOCK, generator=made)


def test_blocks_of_a_sequence_are_one_softmax():
    attn, bias = scores(), torch.zeros(len(GROUPS), 1, 1, 1, BLOCK)
    bias[2, ..., 3] = -torch.inf
    parts, largest, sums = hpu_ops.block_softmax(attn.to("hpu"), bias.to("hpu"), GROUPS.to("hpu"))
    shape = [len(GROUPS), HEADS, 1, 1, 1]
    factor = hpu_ops.block_softmax_adjustment(largest, sums, GROUPS.to("hpu"), 2, shape)
    actual = (parts * factor).cpu()
    for sequence in range(2):
        rows = sequence == GROUPS
        joined = (attn + bias)[rows].movedim(0, -2).flatten(-2).softmax(-1)
        expected = joined.unflatten(-1, (-1, BLOCK)).movedim(-2, 0)
        torch.testing.assert_close(actual[rows], expected)
    assert actual.isfinite().all()


def test_groups_of_other_blocks_are_rejected():
    with rejects("must contain an integer for each of the blocks"):
        hpu_ops.block_softmax(scores().to("hpu"), None, GROUPS[:2].to("hpu"))[0].cpu()


def test_blocks_of_other_shapes_are_rejected():
    attn, groups = scores().to("hpu"), GROUPS.to("hpu")
    with rejects("block_bias must broadcast to [6, 2, 1, 1, 4], but its shape is [2, 6, 2, 1, 1"):
        run(hpu_ops.block_softmax, attn, torch.zeros(2, 6, 2, 1, 1, 4, device="hpu"), groups)
    with rejects("but got Float of shape [6]."):
        run(hpu_ops.block_softmax, attn, None, groups.float())
    _, largest, sums = hpu_ops.block_softmax(attn, None, groups)
    with rejects("must have as many elements as block_max of [6, 2, 1, 1, 1], but got"):
        run(hpu_ops.block_softmax_adjustment, largest, sums, groups, 2, [6, 3])


def everything(attn, bias, groups):
    parts, largest, sums = hpu_ops.block_softmax(attn, bias, groups)
    shape = list(sums.shape)
    return parts, hpu_ops.block_softmax_adjustment(largest, sums, groups, 3, shape)


def operands(blocks, seed=0):
    made = torch.Generator().manual_seed(seed)
    attn = torch.randn(blocks, HEADS, 1, 1, BLOCK, generator=made)
    bias = torch.randn(blocks, 1, 1, 1, BLOCK, generator=made)
    return on_device((attn, bias, torch.randint(-1, 3, (blocks,), generator=made)))
