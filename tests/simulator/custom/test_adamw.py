"""Test FusedAdamW against its formula in float64: float32 within 1e-5, reduced types 3e-2."""

import copy

import pytest
import torch
from habana_frameworks.torch import hpu
from habana_frameworks.torch.hpex import optimizers
from habana_frameworks.torch.hpex.optimizers import distributed
from habana_frameworks.torch.utils.internal import is_lazy
from in_modes import run
from operator_tensors import LAZY, on_device, random_tensors, rejects
from trained_weights import Trained, assert_all_near

hpu_ops = torch.ops.hpu
LAZY_MODE = is_lazy()


def adamw_reference(w, m, v, g, t, lr, betas, eps, decay, correct=True):
    b1, b2 = betas
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    rate = lr * (1 - b2**t) ** 0.5 / (1 - b1**t) if correct else lr
    return w * (1 - decay * lr) - rate * m / (v.sqrt() + eps), m, v


@pytest.mark.parametrize(
    ("dtype", "moments"),
    [
        (torch.float32, None),
        (torch.bfloat16, None),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.float32, (torch.bfloat16, None)),
    ],
    ids=str,
)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("correct", [True, False])
def test_epsilon_is_added_before_bias_correction(dtype, moments, decay, correct):
    trained = Trained(dtype=dtype)
    lr, betas, eps = 0.1, (0.8, 0.95), 1e-2
    optimizer = optimizers.FusedAdamW(trained.weights, lr, betas, eps, decay, correct, moments)
    expected = [(each.detach(), 0 * each.detach(), 0 * each.detach()) for each in trained.exact]
    for t in range(1, 4):
        trained.new_gradients()
        optimizer.step()
        expected = [
            adamw_reference(*state, one.grad, t, lr, betas, eps, decay, correct)
            for state, one in zip(expected, trained.exact, strict=True)
        ]
    within = 1e-5 if dtype is torch.float32 and moments is None else 3e-2
    assert_all_near(trained.weights, [state[0] for state in expected], within)
    states = [optimizer.state[weight] for weight in trained.weights]
    assert_all_near([state["exp_avg"] for state in states], [s[1] for s in expected], within)
    assert_all_near([state["exp_avg_sq"] for state in states], [s[2] for s in expected], within)
    first, second = moments if isinstance(moments, tuple) else (moments, moments)
    assert {state["exp_avg"].dtype for state in states} == {first or dtype}
    assert {state["exp_avg_sq"].dtype for state in states} == {second or dtype}
    assert [state["step"] for state in states] == [0, 0, 0]
    assert optimizer.param_groups[0]["step"] == 3


def test_step_updates_views_with_any_strides():
    base = torch.randn(4, 6, 2)
    device = base.to("hpu")
    weight = device.permute(1, 0, 2)[::2].requires_grad_()
    weight.grad = torch.ones_like(weight)
    optimizers.FusedAdamW([weight], lr=0.5, eps=0.0).step()
    expected = base.clone()
    expected.permute(1, 0, 2)[::2] -= 0.5
    torch.testing.assert_close(device.detach().cpu(), expected)


@pytest.mark.parametrize("fp8", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_fp8_moments_are_stored_with_a_scale(fp8):
    torch.manual_seed(0)
    trained = Trained((64,))
    optimizer = optimizers.FusedAdamW(trained.weights, 0.01, moments_dtype=(fp8, fp8))
    exact = optimizers.FusedAdamW(on_device(trained.weights), 0.01)
    reference = exact.param_groups[0]["params"][0].requires_grad_()
    for _ in range(4):
        trained.new_gradients()
        reference.grad = trained.weights[0].grad
        optimizer.step()
        exact.step()
    state = optimizer.state[trained.weights[0]]
    largest = 240.0 if fp8 is torch.float8_e4m3fn else 57344.0
    for name, scale in (("exp_avg", "exp_avg_scale"), ("exp_avg_sq", "exp_avg_sq_scale")):
        stored, by = state[name].float().cpu(), state[scale].cpu()
        assert (state[name].dtype, by.shape, by.dtype) == (fp8, (1,), torch.float32)
        assert by.log2().frac().item() == 0.0  # the largest power of two that fits
        assert largest / 2.5 < stored.abs().max().item() <= largest
        exact_moment = exact.state[reference][name].cpu()
        torch.testing.assert_close(stored / by, exact_moment, rtol=0.3, atol=0.1)
    torch.testing.assert_close(trained.weights[0].cpu(), reference.cpu(), rtol=5e-2, atol=0.1)


def test_fp8_moments_of_zeros_keep_their_scale():
    weight = torch.ones(3, device="hpu", requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    optimizer = optimizers.FusedAdamW([weight], moments_dtype=torch.float8_e4m3fn)
    optimizer.step()
    assert optimizer.state[weight]["exp_avg_scale"].cpu().tolist() == [1.0]
    assert optimizer.state[weight]["exp_avg"].float().cpu().tolist() == [0.0] * 3
    assert weight.cpu().tolist() == [1.0] * 3


def test_state_of_torch_adamw_and_an_older_key_are_loaded(capsys):
    weight = torch.ones(2, device="hpu", requires_grad=True)
    other = torch.optim.AdamW([torch.ones(2, requires_grad=True)], lr=0.3)
    state = other.state_dict()
    optimizer = optimizers.FusedAdamW([weight], bias_correction=False)
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["bias_correction"] is True
    assert optimizer.param_groups[0]["lr"] == 0.3
    assert capsys.readouterr().out == ""
    state["param_groups"][0]["correct_bias"] = False
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["bias_correction"] is False
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("to", [None, torch.float8_e4m3fn, torch.bfloat16], ids=str)
@pytest.mark.parametrize("of", [torch.float8_e5m2, torch.float32], ids=str)
def test_loaded_moments_are_converted_to_the_optimizers_type(of, to):
    trained = Trained((4,), (2, 3))
    saved = optimizers.FusedAdamW(trained.weights, 0.01, moments_dtype=of)
    trained.new_gradients()
    saved.step()
    loaded = optimizers.FusedAdamW(trained.weights, moments_dtype=to)
    loaded.load_state_dict(saved.state_dict())
    for weight in trained.weights:
        state, exact = loaded.state[weight], saved.state[weight]
        assert set(state) == {"step", "exp_avg", "exp_avg_sq"} | (
            {"exp_avg_scale", "exp_avg_sq_scale"} if to is torch.float8_e4m3fn else set()
        )
        for name in ("exp_avg", "exp_avg_sq"):
            assert state[name].dtype == (to or torch.float32)
            torch.testing.assert_close(
                state[name].float().cpu() / state.get(f"{name}_scale", torch.ones(1)).cpu(),
                exact[name].float().cpu() / exact.get(f"{name}_scale", torch.ones(1)).cpu(),
                rtol=0.07,
                atol=1e-9,
            )


@pytest.mark.parametrize("first", [torch.bfloat16, torch.float32], ids=str)
def test_group_may_contain_weights_of_different_types(first):
    trained = {dtype: Trained((3,), dtype=dtype) for dtype in (torch.bfloat16, torch.float32)}
    order = sorted(trained, key=lambda dtype: dtype is not first)
    options = {"lr": 1e-3, "weight_decay": 0.01}
    together = optimizers.FusedAdamW([trained[dtype].weights[0] for dtype in order], **options)
    copies = {
        dtype: each.weights[0].detach().clone().requires_grad_() for dtype, each in trained.items()
    }
    alone = [optimizers.FusedAdamW([copies[dtype]], **options) for dtype in order]
    for _ in range(3):
        for dtype, each in trained.items():
            each.new_gradients()
            copies[dtype].grad = each.weights[0].grad
        for optimizer in (together, *alone):
            optimizer.step()
    for dtype, copied in copies.items():
        torch.testing.assert_close(
            trained[dtype].weights[0].cpu(), copied.cpu(), rtol=0, atol=1e-7, msg=str(dtype)
        )


@pytest.mark.parametrize("fp8", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_empty_weight_is_supported_with_fp8_moments(fp8):
    trained, other = Trained((0, 3), (4,)), Trained((4,))
    other.weights[0].data.copy_(trained.weights[1].data)
    both = optimizers.FusedAdamW(trained.weights, 0.1, moments_dtype=fp8)
    alone = optimizers.FusedAdamW(other.weights, 0.1, moments_dtype=fp8)
    for _ in range(2):
        for weight in (*trained.weights, *other.weights):
            weight.grad = torch.ones_like(weight)
        for optimizer in (both, alone):
            optimizer.step()
    torch.testing.assert_close(
        trained.weights[1].cpu(), other.weights[0].cpu(), rtol=0.05, atol=0.05
    )
    state = both.state[trained.weights[0]]
    assert (state["exp_avg"].shape, state["exp_avg"].dtype) == ((0, 3), fp8)
    assert state["exp_avg_scale"].cpu().tolist() == [1.0]


def test_weight_without_dimensions_is_supported_with_fp8_moments():
    scalar, vector = (torch.nn.Parameter(torch.ones(s, device="hpu")) for s in ((), (1,)))
    for weight in (scalar, vector):
        weight.grad = torch.full_like(weight, 0.5)
        optimizers.FusedAdamW([weight], 0.1, moments_dtype=torch.float8_e5m2).step()
    assert scalar.shape == ()
    assert scalar.item() == vector.item() != 1


def test_step_supports_states_with_and_without_scales():
    trained = Trained((4,), (4,))
    plain = optimizers.FusedAdamW(trained.weights, 0.1)
    for _ in range(2):  # first one weight has state, then the other
        trained.weights.reverse()
        trained.weights[0].grad = torch.ones(4, device="hpu")
        trained.weights[1].grad = None
        plain.state.clear()
        plain.step()
        optimizer = optimizers.FusedAdamW(plain.param_groups[0]["params"], 0.1)
        optimizer.load_state_dict(plain.state_dict())
        optimizer.moments_dtype = torch.float8_e5m2
        before = [weight.detach().clone() for weight in trained.weights]
        trained.weights[1].grad = torch.ones(4, device="hpu")
        optimizer.step()
        types = [optimizer.state[weight]["exp_avg"].dtype for weight in trained.weights]
        assert types == [torch.float32, torch.float8_e5m2]
        for weight, one in zip(trained.weights, before, strict=True):
            assert (weight < one).all()


def test_copied_optimizer_keeps_the_type_of_its_moments():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    optimizer = copy.deepcopy(optimizers.FusedAdamW([weight], moments_dtype=torch.bfloat16))
    (copied,) = optimizer.param_groups[0]["params"]
    copied.grad = torch.ones_like(copied)
    optimizer.step()
    assert optimizer.state[copied]["exp_avg"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"lr": -1.0}, "Invalid learning rate: -1.0 - should be >= 0.0"),
        ({"betas": (0.9, 1.0)}, "Invalid beta parameter: 1.0 - should be in [0.0, 1.0["),
        ({"betas": (-0.5, 0.9)}, "Invalid beta parameter: -0.5 - should be in [0.0, 1.0["),
        ({"eps": -1e-3}, "Invalid epsilon value: -0.001 - should be >= 0.0"),
    ],
)
def test_invalid_options_are_rejected_with_the_vendors_message(keywords, message):
    weight = torch.ones(2, device="hpu", requires_grad=True)
    for make in (optimizers.FusedAdamW, distributed.FusedAdamW):
        with pytest.raises(ValueError) as error:  # noqa: PT011
            make([weight], **keywords)
        assert str(error.value) == message


def adamw_arguments(*, moments=torch.float32, count=1, scales=()):
    made = [on_device(random_tensors(*[(2,)] * count)) for _ in range(2)]
    states = [on_device(random_tensors((2,), dtype=moments)) for _ in range(2)]
    number = torch.ones(1, device="hpu")
    decay = (1.0,) if is_lazy() else (number, False)
    return (*made, *states, -number, 0.9, 0.99, 1e-6, *decay, *scales)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 2}, "number of elements but they respectively have: 2, 2, 1, 1"),
        ({"count": 0}, "optimizer_adamw : can not process empty weight vector"),
        ({"scales": ([torch.ones(1)], None)}, "optimizer_adamw : expects both or neighter scales"),
        ({"moments": torch.float8_e5m2}, "optimizer_adamw : expects scales with moments of dtype"),
    ],
    ids=["lengths", "empty", "scales", "fp8"],
)
def test_operator_rejects_invalid_lists_with_the_vendors_message(arguments, message):
    if "scales" in arguments:
        arguments = {"scales": (on_device(arguments["scales"][0]), None)}
    with rejects(message):
        run(hpu_ops.optimizer_adamw, *adamw_arguments(**arguments))


def test_functional_adamw_takes_gradients_as_arguments():
    trained = Trained((3,), (4,))
    functional = distributed.FusedAdamW(trained.weights, 0.1, (0.9, 0.99), weight_decay=0.1)
    fused = optimizers.FusedAdamW(
        [each.detach().clone().requires_grad_() for each in trained.weights],
        *(0.1, (0.9, 0.99)),
        weight_decay=0.1,
    )
    others = fused.param_groups[0]["params"]
    for _ in range(3):
        trained.new_gradients()
        others[0].grad = trained.weights[0].grad
        functional.step([trained.weights[0].grad, None])
        fused.step()
    assert torch.equal(trained.weights[0].cpu(), others[0].cpu())
    assert torch.equal(trained.weights[1].cpu().double(), trained.exact[1])
    with pytest.raises(ValueError, match="gradients passed in does not equal to the size of the"):
        functional.step([None])
    with pytest.raises(RuntimeError, match="does not support step_param"):
        functional.step_param(trained.weights[0], None)


def everything(weight, grad, first, second):
    weights, moments = [weight.clone()], ([first.clone()], [second.clone()])
    number = torch.ones(1, device=weight.device)
    decay = (0.5,) if LAZY_MODE else (number * 0.5, True)
    hpu_ops.optimizer_adamw([grad], weights, *moments, -number, 0.9, 0.99, 1e-6, *decay)
    return weights[0], moments[0][0], moments[1][0]


def operands(rows, seed=0):
    weight, grad, first, second = random_tensors(*[(rows, 3)] * 4, seed=seed)
    return on_device([weight, grad, first, second.square()])


@LAZY
def test_replay_steps_the_captured_weights():
    weight, grad, first, second = operands(3)
    number = torch.ones(1, device="hpu")
    graph = hpu.HPUGraph()
    with hpu.stream(hpu.Stream()):
        graph.capture_begin()
        hpu_ops.optimizer_adamw([grad], [weight], [first], [second], -number, 0.9, 0.99, 1e-6, 0.5)
        graph.capture_end()
    weight.copy_(operands(3)[0])
    first.copy_(operands(3)[2])
    second.copy_(operands(3)[3])
    expected = operands(3)
    for seed in (1, 2):
        fresh = operands(3, seed)[1]
        grad.copy_(fresh)
        graph.replay()
        weights = everything(expected[0], fresh, expected[2], expected[3])
        expected = [weights[0], fresh, weights[1], weights[2]]
        for actual, one in zip((weight, first, second), weights, strict=True):
            torch.testing.assert_close(actual.cpu(), one.cpu())
