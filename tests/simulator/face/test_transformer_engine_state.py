"""Test FP8 training over several steps: regions, checkpointing, state and invalid arguments."""

import gc
import io
import weakref
from concurrent.futures import ThreadPoolExecutor

import habana_frameworks.torch.hpex.experimental.transformer_engine as te
import pytest
import torch
from habana_frameworks.torch.hpex.experimental.transformer_engine import recipe
from torch.utils.checkpoint import checkpoint as torch_checkpoint

State = te.fp8.FP8GlobalStateManager


def scales(module):
    return {
        name: {key: each.cpu().tolist() for key, each in vars(meta).items()}
        for name, meta in module.fp8_meta.items()
        if name != "recipe"
    }


def batch(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to("hpu")


def test_region_is_left_after_an_error():
    coarse, fine = recipe.DelayedScaling(margin=3), recipe.DelayedScaling(interval=2)

    @te.fp8_autocast(fp8_recipe=coarse, fp8_group="group")
    def inside(depth):
        assert (State.is_fp8_enabled(), State.get_fp8_recipe()) == (True, coarse)
        assert State.get_fp8_group() == "group"
        if depth:
            inside(depth - 1)

    inside(2)
    region = te.fp8_autocast(fp8_recipe=fine)

    @region
    def fail():
        assert State.is_fp8_enabled()
        raise ZeroDivisionError

    with region:
        with te.fp8_autocast(enabled=False), pytest.raises(ZeroDivisionError):
            fail()
        assert State.get_fp8_recipe() is fine
        with ThreadPoolExecutor(1) as pool:  # like autocast, regions belong to threads
            assert pool.submit(State.is_fp8_enabled).result() is False
    assert not State.is_fp8_enabled()
    assert State.get_fp8_recipe() == te.fp8.get_default_fp8_recipe() == recipe.DelayedScaling()
    with te.fp8_autocast(), te.fp8_autocast():
        State.reset_global_state()
        assert not State.is_fp8_enabled()
    with te.fp8_autocast():
        assert State.is_fp8_enabled()
    assert not State.is_fp8_enabled()


def test_scales_are_updated_in_the_next_outermost_region():
    module = te.Linear(4, 4)
    data = torch.full((2, 4), 6.0, device="hpu")
    coarse = recipe.DelayedScaling(margin=1)
    with te.fp8_autocast():
        for _ in range(2):
            with te.fp8_autocast(fp8_recipe=coarse):
                module(data)
    assert scales(module)["scaling_fwd"]["scale"] == [1.0, 1.0]
    with te.fp8_autocast(fp8_recipe=coarse):
        module(data)
    assert scales(module)["scaling_fwd"]["scale"][0] == 20.0


def test_measurements_before_an_error_count_for_the_next_step():
    module = te.Linear(4, 4)

    @te.fp8_autocast()
    def fail():
        module(torch.full((2, 4), 12.0, device="hpu"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    for scale in (1.0, 20.0, 40.0):
        with te.fp8_autocast():
            module(torch.full((2, 4), 6.0, device="hpu"))
        assert scales(module)["scaling_fwd"]["scale"][0] == scale


def test_measurements_of_a_failed_backward_count_for_the_next_one():
    module = te.Linear(4, 4)
    data = batch(0, 2, 4)

    def fail(grad):
        raise RuntimeError("stop")

    with te.fp8_autocast():
        out = module(data.clone().requires_grad_())
    handle = module.weight.register_hook(fail)
    with pytest.raises(RuntimeError, match="stop"):
        out.backward(torch.full_like(out, 8.0))
    handle.remove()
    for scale in (1.0, 57344 / 8, 57344 / 4):
        with te.fp8_autocast():
            out = module(data)
        out.backward(torch.full_like(out, 4.0))
        assert scales(module)["scaling_bwd"]["scale"] == [scale]


def test_recipe_can_change_between_steps():
    module = te.Linear(4, 4)
    for length, value in ((3, 8.0), (3, 4.0), (3, 2.0), (5, 1.0), (2, 0.5)):
        scaling = recipe.DelayedScaling(amax_history_len=length)
        with te.fp8_autocast(fp8_recipe=scaling):
            module(torch.full((1, 4), value, device="hpu"))
        if length == 5:
            amaxes = module.fp8_meta["scaling_fwd"].amax_history[:, 0].tolist()
            assert amaxes == [1.0, 0.0, 8.0, 4.0, 2.0]
    assert module.fp8_meta["scaling_fwd"].amax_history[:, 0].tolist() == [0.5, 1.0]
    other = recipe.DelayedScaling(fp8_format=recipe.Format.E5M2)
    for _ in range(2):
        with te.fp8_autocast(fp8_recipe=other):
            out = module(torch.full((1, 4), 7.0, device="hpu"))
    assert out.dtype is torch.bfloat16
    assert scales(module)["scaling_fwd"]["scale"][0] == 57344 / 7


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = te.Linear(8, 16), te.LayerNormLinear(16, 8)

    def forward(self, data):
        return data + self.second(torch.relu(self.first(data)))


def train(model, optimizer, steps):
    scaling = recipe.DelayedScaling(amax_history_len=3, amax_compute_algo="max", interval=2)
    for step in steps:
        torch.manual_seed(step)  # gradients round stochastically
        with te.fp8_autocast(fp8_recipe=scaling):
            out = model(batch(step, 4, 8) * (1 + step))
        out.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [each.detach().cpu() for each in model.parameters()]


def new_training():
    model = Block()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def test_resumed_training_equals_uninterrupted_training():
    model, optimizer = new_training()
    uninterrupted = train(model, optimizer, range(7))
    first, its_optimizer = new_training()
    train(first, its_optimizer, range(3))
    file = io.BytesIO()
    torch.save({"model": first.state_dict(), "optimizer": its_optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    second, its_optimizer = new_training()
    second.load_state_dict(loaded["model"])
    its_optimizer.load_state_dict(loaded["optimizer"])
    assert scales(second.first) == scales(first.first)
    assert second.first.fp8_meta["recipe"] == first.first.fp8_meta["recipe"]
    resumed = train(second, its_optimizer, range(3, 7))
    assert all(map(torch.equal, resumed, uninterrupted))
    assert scales(second.second) == scales(model.second)


def test_state_of_an_ordinary_or_new_layer_is_loaded():
    plain = torch.nn.Linear(4, 3)
    module = te.Linear(4, 3)
    with te.fp8_autocast():
        module(batch(0, 2, 4))
    state = plain.state_dict()
    module.load_state_dict(state)
    assert list(state) == ["weight", "bias"]
    assert module.fp8_meta == {}
    assert torch.equal(module.weight.detach().cpu(), plain.weight.detach())
    module.load_state_dict(te.Linear(4, 3).state_dict())
    assert module.fp8_meta == {}
    with pytest.raises(RuntimeError, match=r"Missing key.*bias"):
        module.load_state_dict({"weight": plain.weight})


@pytest.mark.parametrize("foreign", [None, torch.zeros(4, dtype=torch.uint8), io.BytesIO(b"...")])
def test_scales_of_another_package_are_reset(foreign):
    module = te.Linear(4, 3)
    with te.fp8_autocast():
        module(batch(0, 2, 4))
    state = module.state_dict() | {"_extra_state": foreign}
    kind = type(foreign).__name__
    with pytest.warns(
        UserWarning, match=rf"this Linear are reset because .* a {kind} from another"
    ):
        module.load_state_dict(state)
    assert module.fp8_meta == {}
    for scale in (1.0, 40.0):
        with te.fp8_autocast():
            module(torch.full((2, 4), 6.0, device="hpu"))
        assert scales(module)["scaling_fwd"]["scale"][0] == scale


def test_state_dict_is_a_copy():
    module = te.Linear(4, 3)
    with te.fp8_autocast():
        module(batch(0, 2, 4))
    state = module.state_dict()
    before = scales(module)
    copied = te.Linear(4, 3)
    copied.load_state_dict(state)
    for each, other in ((module, copied), (copied, te.Linear(4, 3))):
        with te.fp8_autocast():
            each(batch(0, 2, 4) * 9)
        assert scales(each) != before
        other.load_state_dict(state)
        assert scales(other) == before


def batches_of_microbatches(
    cached, order, minimize_memory=False, apply=lambda *args: args[0](*args[1:])
):
    """Train on batches of four microbatches; return results, gradients and scales."""
    torch.manual_seed(0)
    module, results = te.LayerNormLinear(8, 8, minimize_memory=minimize_memory), []
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scaling = recipe.DelayedScaling(amax_history_len=3, amax_compute_algo="max")
    for number in range(3):
        losses, data = [], [batch(4 * number + each, 2, 8).requires_grad_() for each in range(4)]
        for place, each in enumerate(data):
            first = (place < 2) if cached else None
            with te.fp8_autocast(fp8_recipe=scaling):
                out = apply(module, each, None, None, first)
            results.append(out.detach().cpu())
            losses.append(out.float().square().sum())
            if order == "one after another" or place % 2:
                for loss in losses:
                    loss.backward()
                losses.clear()
        optimizer.step()
        results += [each.grad.cpu() for each in (*data, *module.parameters())]
        optimizer.zero_grad()
    return results, scales(module)


@pytest.mark.parametrize("minimize_memory", [False, True])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("order", ["one after another", "two forward, two backward"])
def test_microbatches_can_share_the_cast_weight(cached, order, minimize_memory):
    expected = batches_of_microbatches(False, "one after another")
    found = batches_of_microbatches(cached, order, minimize_memory)
    assert all(map(torch.equal, found[0], expected[0]))
    assert found[1] == expected[1]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_reuses_the_shared_weight_of_microbatches(reentrant):
    def apply(*args):
        return torch_checkpoint(*args, use_reentrant=reentrant)

    for cached in (False, True):
        expected = batches_of_microbatches(cached, "two forward, two backward")
        found = batches_of_microbatches(cached, "two forward, two backward", apply=apply)
        assert all(map(torch.equal, found[0], expected[0]))
        assert found[1] == expected[1]


def test_stored_cast_is_used_until_a_first_microbatch_or_a_new_state():
    module, data = te.Linear(4, 3, bias=False), torch.ones(2, 4, device="hpu")
    other = {"weight": torch.full((3, 4), 4.0)}

    def result(is_first):
        with te.fp8_autocast(force_measurement=False), torch.no_grad():
            return module(data, is_first_microbatch=is_first).unique().tolist()

    with torch.no_grad():
        module.weight.fill_(1.0)
        assert result(False) == result(True) == [4.0]
        module.weight.fill_(2.0)
    assert [result(is_first) for is_first in (False, None, False, True, False)] == [
        *([4.0], [8.0], [4.0], [8.0], [8.0])
    ]
    module.load_state_dict(other)
    assert result(False) == [16.0]


@pytest.mark.parametrize("ran", [0, 1, 2, 5])
def test_saved_scales_are_restored_after_steps_with_dummy_data(ran):
    scaling = recipe.DelayedScaling(interval=2, amax_history_len=2, amax_compute_algo="max")

    def run(module, steps):
        for step in steps:
            torch.manual_seed(step)
            with te.fp8_autocast(fp8_recipe=scaling):
                out = module(batch(step, 4, 8) * (1 + step))
            out.float().square().sum().backward()

    torch.manual_seed(0)
    module, plain = te.Linear(8, 8), te.Linear(8, 8)
    plain.load_state_dict(module.state_dict())
    for each in (module, plain):
        run(each, range(ran))
    saved = module.save_fp8_meta()
    before = scales(module)
    run(module, range(20, 25))
    tensors = dict(vars(module.fp8_meta["scaling_fwd"]))
    assert scales(module) != before
    module.load_fp8_meta(saved)
    assert all(vars(module.fp8_meta["scaling_fwd"])[name] is tensors[name] for name in tensors)
    assert not ran or scales(module) == before
    for each in (module, plain):
        run(each, range(ran, ran + 4))
    assert scales(module) == scales(plain)


def test_module_is_freed_without_the_garbage_collector():
    module = te.Linear(4, 3)
    with te.fp8_autocast():
        module(batch(0, 2, 4)).sum().backward()
    gone = weakref.ref(module)
    gc.disable()
    try:
        del module
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"margin": 0.5}, TypeError, "margin=0.5 is not an integer"),
        ({"interval": 0}, ValueError, "interval=0 is too small; use at least 1"),
        ({"interval": True}, TypeError, "interval=True is not an integer"),
        ({"amax_history_len": 0}, ValueError, "amax_history_len=0 is too small"),
        ({"fp8_format": "HYBRID"}, TypeError, "'HYBRID' is not a Format; use recipe.Format.HYBRID"),
        ({"amax_compute_algo": "mean"}, ValueError, "'mean' is not supported; use 'most_recent'"),
        (
            {"override_linear_precision": (False, False, True)},
            ValueError,
            "override_linear_precision=.* is not supported because all three matmuls",
        ),
    ],
)
def test_recipe_refuses_unsupported_values(options, error, sentence):
    with pytest.raises(error, match=sentence):
        recipe.DelayedScaling(**options)


@pytest.mark.parametrize(
    ("use", "error", "sentence"),
    [
        (lambda: te.fp8_autocast(fp8_recipe="HYBRID"), TypeError, "'HYBRID' is not a recipe"),
        (lambda: te.Linear(0, 4), ValueError, "in_features=0 is too small; use at least 1"),
        (
            lambda: te.FusedAttention(attention_dropout=1.0),
            ValueError,
            "attention_dropout=1.0 is out of range",
        ),
        (lambda: te.Linear(4, 4, params_dtype=torch.int8), ValueError, "torch.int8 is not supp"),
        (
            lambda: te.Linear(4, 4, skip_weight_param_allocation=True)(batch(0, 2, 4)),
            ValueError,
            "has no weight; assign one",
        ),
        (
            lambda: te.Linear(4, 4)(batch(0, 2, 5)),
            ValueError,
            r"expects 4 features in the last dimension, but its input has shape \(2, 5\)",
        ),
        (
            lambda: te.LayerNormLinear(4, 4)(torch.ones((), device="hpu")),
            ValueError,
            r"expects 4 features in the last dimension, but its input has shape \(\)",
        ),
        (
            lambda: te.Linear(4, 4)(batch(0, 2, 4).half()),
            TypeError,
            r"a tensor of shape \(2, 4\) is torch.float16; convert it with .to\(torch.bfloat16",
        ),
        (
            lambda: te.Linear(4, 3, params_dtype=torch.float16)(batch(0, 2, 4)),
            TypeError,
            r"a tensor of shape \(3, 4\) is torch.float16; convert it with .to\(torch.bfloat16",
        ),
        (
            lambda: torch.autocast("hpu", torch.float16)(te.Linear(4, 4))(batch(0, 2, 4)),
            TypeError,
            r"cannot compute in FP8 under autocast to torch.float16; use torch.autocast\('hpu'",
        ),
        (
            lambda: te.Linear(4, 4)(torch.ones(2, 4)),
            TypeError,
            r"computes in FP8 on hpu, but a tensor of shape \(2, 4\) is on cpu; move it",
        ),
    ],
)
def test_layer_refuses_unsupported_values(use, error, sentence):
    with te.fp8_autocast(), pytest.raises(error, match=sentence):
        use()


def test_scales_from_inference_are_updated_in_training():
    module = te.Linear(4, 3).eval()
    with torch.inference_mode(), te.fp8_autocast():
        module(batch(0, 2, 4))
    module.train()
    for scale in (1.0, 40.0):
        with te.fp8_autocast():
            out = module(torch.full((2, 4), 6.0, device="hpu"))
        out.sum().backward()
        assert scales(module)["scaling_fwd"]["scale"][0] == scale


def test_scales_are_float32_for_any_default_dtype():
    torch.set_default_dtype(torch.bfloat16)
    try:
        module = te.Linear(4, 3)
        with te.fp8_autocast():
            module(batch(0, 2, 4))
    finally:
        torch.set_default_dtype(torch.float32)
    assert module.weight.dtype is torch.bfloat16
    assert {each.dtype for each in vars(module.fp8_meta["scaling_fwd"]).values()} == {torch.float32}


@pytest.mark.parametrize("shape", [(0, 4), (4,), (2, 0, 4), (3, 1, 2, 4)], ids=str)
def test_any_shape_of_input_is_accepted(shape):
    module = te.Linear(4, 3)
    with torch.no_grad():
        module.weight.fill_(0.5)
        module.bias.fill_(1.0)
    data = torch.ones(shape, device="hpu", requires_grad=True)
    with te.fp8_autocast():
        out = module(data)
    out.sum().backward()
    assert torch.equal(out.detach().cpu(), torch.full((*shape[:-1], 3), 3.0).bfloat16())
    assert torch.equal(data.grad.cpu(), torch.full(shape, 1.5))
    rows = data.numel() // 4
    assert torch.equal(module.weight.grad.cpu(), torch.full((3, 4), float(rows)))


def test_second_derivatives_are_refused():
    data = batch(0, 2, 4).requires_grad_()
    with te.fp8_autocast():
        out = te.Linear(4, 3)(data)
    (grad,) = torch.autograd.grad(out.float().square().sum(), data, create_graph=True)
    with pytest.raises(RuntimeError, match="Linear in FP8 supports only first derivatives"):
        grad.sum().backward()
