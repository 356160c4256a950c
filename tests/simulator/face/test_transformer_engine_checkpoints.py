"""Checkpointed forward passes in 8 bits that others come between: each is repeated as it was.

Reentrant checkpoints sum the gradients of parameters in another order, which float32 rounds.
"""

import copy
import io

import pytest
import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from hpu_magic.simulator import activate

activate(announce=False)

import habana_frameworks.torch.hpex.experimental.transformer_engine as te  # noqa: E402
from habana_frameworks.torch.hpex.experimental.transformer_engine import recipe  # noqa: E402


def not_reentrant(function, data):
    return torch_checkpoint(function, data, use_reentrant=False)


def reentrant(function, data):
    return torch_checkpoint(function, data, use_reentrant=True)


def plain(function, data):
    return function(data)


WAYS = [te.checkpoint, not_reentrant, reentrant]


class Block(torch.nn.Module):
    """A layer that is used twice, and one behind a normalization."""

    def __init__(self, inner=plain):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = te.Linear(8, 8), te.LayerNormLinear(8, 8)
        self.inner = inner

    def forward(self, data):
        hidden = self.inner(self.first, torch.relu(self.inner(self.first, data)))
        return data + torch.sin(self.inner(self.second, hidden))


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(4, 8, generator=generator) * 10.0**seed).to("hpu").requires_grad_()


def scales(block):
    return [
        meta.scale.tolist()
        for layer in (block.first, block.second)
        for name, meta in layer.fp8_meta.items()
        if name != "recipe"
    ]


def gradients(block, apply, backward, between=lambda block: None):
    """Gradients of three steps whose backward passes come after all of their forward passes."""
    given = recipe.DelayedScaling(amax_history_len=2)
    data, losses = [batch(seed) for seed in range(3)], []
    for each in data:
        with te.fp8_autocast(fp8_recipe=given):
            out = apply(block, each)
        losses.append(out.float().square().sum())
        between(block)
    if backward == "together":
        sum(losses).backward()
    else:
        for loss in losses if backward == "in order" else reversed(losses):
            loss.backward()
    found = [each.grad.cpu() for each in (*data, *block.parameters())]
    return found, scales(block)


def assert_same(found, expected):
    for mine, its in zip(found[0], expected[0], strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-6 * its.abs().max().item())
    assert found[1] == expected[1]


@pytest.mark.parametrize("backward", ["together", "in order", "the last first"])
@pytest.mark.parametrize("apply", WAYS)
def test_each_step_is_repeated_with_its_own_scales(apply, backward):
    assert_same(gradients(Block(), apply, backward), gradients(Block(), plain, backward))


def evaluate(block):
    with torch.no_grad():
        block(batch(1))


def evaluate_in_8_bits(block):
    block.eval()
    with torch.no_grad(), te.fp8_autocast(fp8_recipe=recipe.DelayedScaling(amax_history_len=2)):
        block(batch(1))
    block.train()


@pytest.mark.parametrize("between", [evaluate, evaluate_in_8_bits])
@pytest.mark.parametrize("apply", WAYS)
def test_an_evaluation_in_between_changes_nothing(apply, between):
    expected = gradients(Block(), plain, "in order")
    assert_same(gradients(Block(), apply, "in order", between), expected)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("outer", WAYS)
@pytest.mark.parametrize("inner", [not_reentrant, reentrant])
def test_checkpoints_within_checkpoints_are_repeated_twice(outer, inner):
    expected = gradients(Block(), plain, "in order")
    assert_same(gradients(Block(inner), outer, "in order"), expected)


@pytest.mark.parametrize("apply", WAYS)
def test_a_step_without_8_bits_is_repeated_without(apply):
    results = []
    for way in (plain, apply):
        block, data = Block(), [batch(0), batch(1)]
        without = way(block, data[0])
        with te.fp8_autocast():
            within = way(block, data[1])
        for out in (without, within):
            out.float().square().sum().backward()
        results.append([each.grad.cpu() for each in (*data, *block.parameters())])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_has_nothing_to_repeat(how):
    block = Block()
    gradients(block, reentrant, "in order")
    if how == "deepcopy":
        copied = copy.deepcopy(block)
    else:
        file = io.BytesIO()
        torch.save(block, file)
        file.seek(0)
        copied = torch.load(file, weights_only=False)
    block.zero_grad()
    copied.zero_grad()
    assert scales(copied) == scales(block)
    assert_same(gradients(copied, reentrant, "in order"), gradients(block, plain, "in order"))


def test_another_thread_meets_whole_metas():
    seen = []

    class Watched(te.Linear):
        def metas(self, recipe):  # called while they are made
            seen.append(list(self.fp8_meta))
            return super().metas(recipe)

    module = Watched(8, 8)
    for _ in range(2):
        with te.fp8_autocast():
            module(batch(0))
    assert seen == [[], ["recipe", "scaling_fwd", "scaling_bwd", "scaling_hybrid"]]


@pytest.mark.parametrize("apply", [plain, *WAYS])
def test_a_state_may_be_loaded_before_the_backward_pass(apply):
    """Scales begin anew then: gradients have those of a first step."""
    found = []
    for loads in (False, True):
        torch.manual_seed(0)
        module, data = te.Linear(8, 8), batch(0)
        with te.fp8_autocast():
            out = apply(module, data)
        if loads:
            module.load_state_dict({"weight": module.weight, "bias": module.bias})
        out.float().square().sum().backward()
        found.append([each.grad.cpu() for each in (data, module.weight)])
    assert module.fp8_meta == {}
    assert all(map(torch.equal, *found))
