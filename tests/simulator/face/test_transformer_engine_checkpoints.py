"""Test recomputation of checkpointed forward passes in FP8, with other passes in between.

Reentrant checkpoints sum parameter gradients in another order, with different rounding errors.
"""

import copy
import gc
import io
from contextlib import nullcontext

import habana_frameworks.torch.hpex.experimental.transformer_engine as te
import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch.hpex.experimental.transformer_engine import recipe
from torch.utils.checkpoint import checkpoint as torch_checkpoint


def not_reentrant(function, data):
    return torch_checkpoint(function, data, use_reentrant=False)


def reentrant(function, data):
    return torch_checkpoint(function, data, use_reentrant=True)


def plain(function, data):
    return function(data)


def by_te(function, data):
    with te.distributed.activation_checkpointing():
        return te.checkpoint(function, data)


METHODS = [by_te, not_reentrant, reentrant]


class Block(torch.nn.Module):
    """A layer that is used twice, and a layer after a normalization."""

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


def gradients(
    block, apply, backward, between=lambda block: None, steps=3, region=nullcontext, interval=1
):
    """Return gradients of steps with all forward passes before the backward passes."""
    scaling = recipe.DelayedScaling(amax_history_len=2, interval=interval)
    data, losses = [batch(step % 3) for step in range(steps)], []
    for each in data:
        with te.fp8_autocast(fp8_recipe=scaling):
            out = apply(block, each)
        losses.append(out.float().square().sum())
        between(block)
    with region():
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


@pytest.mark.parametrize(
    "options",
    [{}, {"region": te.fp8_autocast}, {"interval": 2}],
    ids=["plain", "region", "interval"],
)
@pytest.mark.parametrize("backward", ["together", "in order", "the last first"])
@pytest.mark.parametrize("apply", METHODS)
def test_each_step_is_recomputed_with_its_own_scales(apply, backward, options):
    """Some scripts also enter an FP8 region for the backward pass."""
    found = gradients(Block(), apply, backward, **options)
    assert_same(found, gradients(Block(), plain, backward, interval=options.get("interval", 1)))


@pytest.mark.parametrize("apply", METHODS)
def test_many_steps_can_precede_their_backward_passes(apply):
    expected = gradients(Block(), plain, "in order", steps=70)
    assert_same(gradients(Block(), apply, "in order", steps=70), expected)


@pytest.mark.parametrize("apply", METHODS)
def test_scales_of_steps_are_freed_with_their_graphs(apply):
    block = Block()
    allocated = []
    for steps in (3, 50, 3):
        gradients(block, apply, "in order", steps=steps)
        block.zero_grad()
        for _ in range(steps):
            evaluate_in_fp8(block)
        gc.collect()
        htcore.mark_step()
        allocated.append(torch.hpu.memory_allocated())
    assert len(set(allocated)) == 1


class Twice(Block):
    """A block with an FP8 region for each use of its layers, and a frozen layer."""

    def __init__(self):
        super().__init__()
        self.second.requires_grad_(False)

    def forward(self, data):
        target = self.shift(torch.ones_like(data).detach())
        with torch.autograd.graph.save_on_cpu():
            hidden = self.scaled(data)
        return self.scaled(torch.relu(hidden) * target) * target

    @te.fp8_autocast(fp8_recipe=recipe.DelayedScaling(amax_history_len=2))
    def scaled(self, data):
        return self.first(data)

    @te.fp8_autocast(fp8_recipe=recipe.DelayedScaling(amax_history_len=2))
    def shift(self, data):
        return self.second(data * (1 + self.first.weight.detach().abs().max()))


@pytest.mark.parametrize("apply", METHODS)
def test_each_use_in_a_checkpoint_is_recomputed_with_its_own_scales(apply):
    results = []
    for way in (plain, apply):
        block, data = Twice(), [batch(seed) for seed in range(3)]
        losses = [way(block, each).float().square().sum() for each in data]
        for loss in losses:
            loss.backward()
        results.append(([each.grad.cpu() for each in (*data, block.first.weight)], scales(block)))
    assert_same(results[1], results[0])


def evaluate(block):
    with torch.no_grad():
        block(batch(1))


def evaluate_in_fp8(block):
    block.eval()
    with torch.no_grad(), te.fp8_autocast(fp8_recipe=recipe.DelayedScaling(amax_history_len=2)):
        block(batch(1))
    block.train()


@pytest.mark.parametrize("between", [evaluate, evaluate_in_fp8])
@pytest.mark.parametrize("apply", METHODS)
def test_evaluation_between_forward_and_backward_changes_nothing(apply, between):
    expected = gradients(Block(), plain, "in order")
    assert_same(gradients(Block(), apply, "in order", between), expected)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("outer", METHODS)
@pytest.mark.parametrize("inner", [not_reentrant, reentrant])
def test_nested_checkpoints_are_recomputed_twice(outer, inner):
    expected = gradients(Block(), plain, "in order")
    assert_same(gradients(Block(inner), outer, "in order"), expected)


@pytest.mark.parametrize("apply", METHODS)
def test_step_without_fp8_is_recomputed_without_fp8(apply):
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
def test_copy_has_nothing_to_recompute(how):
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
    found = []
    for each, apply in ((copied, reentrant), (block, plain)):
        torch.manual_seed(1)  # gradients round stochastically
        found.append(gradients(each, apply, "in order"))
    assert_same(*found)


def test_other_threads_see_complete_metas():
    seen = []

    class Watched(te.Linear):
        def metas(self, recipe):  # called when the FP8 state is created
            seen.append(list(self.fp8_meta))
            return super().metas(recipe)

    module = Watched(8, 8)
    for _ in range(2):
        with te.fp8_autocast():
            module(batch(0))
    assert seen == [[], ["recipe", "scaling_fwd", "scaling_bwd", "scaling_hybrid"]]


@pytest.mark.parametrize("apply", [plain, *METHODS])
def test_state_can_be_loaded_before_the_backward_pass(apply):
    """The scales of gradients are then those of the first step."""
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
