"""Fused optimizers against float64: weights of float32 within 1e-5, reduced types within 2e-2."""

import copy
import itertools

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch import _hpex_C, hpu  # noqa: E402
from habana_frameworks.torch import core as htcore  # noqa: E402
from habana_frameworks.torch.hpex import optimizers  # noqa: E402
from habana_frameworks.torch.hpex.movingavrg import FusedEMA  # noqa: E402
from habana_frameworks.torch.hpex.optimizers import distributed  # noqa: E402
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_compiles, run  # noqa: E402

hpu_ops = torch.ops.hpu
LAZY_MODE = is_lazy()
SHAPES = ((3, 4), (5,), ())
EAGER = pytest.mark.skipif(is_lazy(), reason="operators of eager mode")
LAZY = pytest.mark.skipif(not is_lazy(), reason="lazy mode's own")


def tensors(*shapes, dtype=torch.float32, seed=0):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=made).to(dtype) for shape in shapes]


def on_device(values):
    return [each.to("hpu") for each in values]


def assert_near(found, expected, tolerance=None):
    htcore.mark_step()
    for one, other in zip(found, expected, strict=True):
        within = tolerance or (1e-5 if one.dtype is torch.float32 else 2e-2)
        torch.testing.assert_close(
            one.detach().cpu().double(), other.detach().double(), rtol=within, atol=within
        )


class Trained:
    """Weights on the device and in float64, and the same gradients for both in each step."""

    def __init__(self, *shapes, dtype=torch.float32):
        start = tensors(*(shapes or SHAPES), dtype=dtype)
        self.weights = [each.to("hpu").requires_grad_() for each in start]
        self.exact = [each.double().requires_grad_() for each in start]
        self.seeds = itertools.count(1)

    def new_gradients(self):
        shapes = [each.shape for each in self.exact]
        fresh = tensors(*shapes, dtype=self.weights[0].dtype, seed=next(self.seeds))
        for weight, one, grad in zip(self.weights, self.exact, fresh, strict=True):
            weight.grad, one.grad = grad.to("hpu"), grad.double()


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
def test_adamw_adds_epsilon_before_the_correction_of_bias(dtype, moments, decay, correct):
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
    assert_near(trained.weights, [state[0] for state in expected], within)
    states = [optimizer.state[weight] for weight in trained.weights]
    assert_near([state["exp_avg"] for state in states], [state[1] for state in expected], within)
    assert_near([state["exp_avg_sq"] for state in states], [s[2] for s in expected], within)
    first, second = moments if isinstance(moments, tuple) else (moments, moments)
    assert {state["exp_avg"].dtype for state in states} == {first or dtype}
    assert {state["exp_avg_sq"].dtype for state in states} == {second or dtype}
    assert [state["step"] for state in states] == [0, 0, 0]
    assert optimizer.param_groups[0]["step"] == 3


def test_adamw_writes_through_views_of_any_strides():
    base = torch.randn(4, 6, 2)
    device = base.to("hpu")
    weight = device.permute(1, 0, 2)[::2].requires_grad_()
    weight.grad = torch.ones_like(weight)
    optimizers.FusedAdamW([weight], lr=0.5, eps=0.0).step()
    expected = base.clone()
    expected.permute(1, 0, 2)[::2] -= 0.5
    torch.testing.assert_close(device.detach().cpu(), expected)


@pytest.mark.parametrize("fp8", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_adamw_with_fp8_moments_stores_them_with_a_scale(fp8):
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
        assert by.log2().frac().item() == 0.0  # a power of two, the largest that fits
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


def test_adamw_loads_the_state_of_torchs_and_an_older_key(capsys):
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


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"lr": -1.0}, "Invalid learning rate: -1.0 - should be >= 0.0"),
        ({"betas": (0.9, 1.0)}, "Invalid beta parameter: 1.0 - should be in [0.0, 1.0["),
        ({"betas": (-0.5, 0.9)}, "Invalid beta parameter: -0.5 - should be in [0.0, 1.0["),
        ({"eps": -1e-3}, "Invalid epsilon value: -0.001 - should be >= 0.0"),
    ],
)
def test_adamw_refuses_its_parameters_in_the_vendors_words(keywords, said):
    weight = torch.ones(2, device="hpu", requires_grad=True)
    for make in (optimizers.FusedAdamW, distributed.FusedAdamW):
        with pytest.raises(ValueError) as refused:  # noqa: PT011
            make([weight], **keywords)
        assert str(refused.value) == said


def test_a_step_evaluates_its_closure_with_gradients():
    weight = torch.tensor([2.0]).to("hpu").requires_grad_()
    for optimizer in (
        optimizers.FusedAdamW([weight]),
        optimizers.FusedSGD([weight], 0.1),
        optimizers.FusedLamb([weight]),
        optimizers.FusedResourceApplyMomentum([weight], 0.1),
    ):
        weight.grad = None

        def closure():
            loss = (weight * weight).sum()
            loss.backward()
            return loss

        before = weight.item()
        assert optimizer.step(closure).item() == pytest.approx(before**2)
        assert weight.item() != before
        weight.grad = None
        optimizer.step()  # none has a gradient: nothing to do


def adamw_arguments(*, moments=torch.float32, count=1, scales=()):
    made = [on_device(tensors(*[(2,)] * count)) for _ in range(2)]
    states = [[each.to(moments) for each in on_device(tensors(*[(2,)] * 1))] for _ in range(2)]
    number = torch.ones(1, device="hpu")
    decay = (1.0,) if is_lazy() else (number, False)
    return (*made, *states, -number, 0.9, 0.99, 1e-6, *decay, *scales)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"count": 2},
            "All 4 vector inputs must have the same number of elements but they respectively "
            "have: 2, 2, 1, 1",
        ),
        ({"count": 0}, "optimizer_adamw : can not process empty weight vector"),
        (
            {"scales": ([torch.ones(1)], None)},
            "optimizer_adamw : expects both or neighter scales to be set",
        ),
        (
            {"moments": torch.float8_e5m2},
            "optimizer_adamw : expects scales with moments of dtype Float8_e5m2.",
        ),
    ],
    ids=["lengths", "empty", "scales", "fp8"],
)
def test_the_operator_of_adamw_refuses_lists_in_its_words(arguments, said):
    if "scales" in arguments:
        arguments = {"scales": (on_device(arguments["scales"][0]), None)}
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.optimizer_adamw, *adamw_arguments(**arguments))
    assert said in str(refused.value)


def test_the_functional_adamw_is_given_its_gradients():
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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sgd_is_that_of_torch(options, dtype):
    trained = Trained(dtype=dtype)
    fused = optimizers.FusedSGD(trained.weights, 0.1, **options)
    exact = torch.optim.SGD(trained.exact, 0.1, **options)
    for _ in range(3):
        trained.new_gradients()
        fused.step()
        exact.step()
    assert_near(trained.weights, trained.exact)


def test_sgds_dampening_acts_on_the_first_step_too():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizers.FusedSGD([weight], 0.1, momentum=0.5, dampening=0.5).step()
    torch.testing.assert_close(weight.detach().cpu(), torch.full((2,), 1 - 0.1 * 0.5))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lr": -1}, "Invalid learning rate: -1"),
        ({"lr": 1, "momentum": -1}, "Invalid momentum value: -1"),
        ({"lr": 1, "weight_decay": -1}, "Invalid weight_decay value: -1"),
        (
            {"lr": 1, "nesterov": True},
            "Nesterov momentum requires a momentum and zero dampening",
        ),
    ],
)
def test_sgd_refuses_its_parameters_as_torch_does(options, said):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        optimizers.FusedSGD([torch.ones(1, device="hpu", requires_grad=True)], **options)
    assert str(refused.value) == said


@EAGER
def test_the_operators_of_sgd_refuse_lists_in_their_words():
    one, number = on_device(tensors((2,))), torch.ones(1, device="hpu")
    for arguments, said in (
        (([], []), "optimizer_sgd : can not process empty weight vector"),
        ((one * 2, one), "Both vector inputs must have the same number of elements"),
    ):
        with pytest.raises(RuntimeError, match=said):
            hpu_ops.optimizer_sgd(*arguments, number, 0.0, 0.0, 0.0, False)
    for arguments, said in (
        (([], [], []), "optimizer_sgd_momentum : can not process empty weight vector"),
        ((one, one, one * 2), "All vector inputs must have the same number of elements"),
    ):
        with pytest.raises(RuntimeError, match=said):
            hpu_ops.optimizer_sgd_momentum(*arguments, number, number, number, 0.0, 0.0, False)


def lamb_reference(exact, states, clip, t, *, lr, betas, eps, decay, average, use_lamb):
    b1, b2 = betas
    for one, state in zip(exact, states, strict=True):
        grad = one.grad / clip
        state["m"] = b1 * state.get("m", 0) + (1 - b1 if average else 1) * grad
        state["v"] = b2 * state.get("v", 0) + (1 - b2) * grad**2
        step = state["m"] / (1 - b1**t) / ((state["v"] / (1 - b2**t)).sqrt() + eps)
        step = step + decay * one.detach()
        trust = 1.0
        if decay or use_lamb:
            trust = one.detach().norm() / step.norm() if step.norm() > 0 else 1.0
        one.data -= lr * trust * step


@pytest.mark.parametrize(
    ("decay", "average", "use_lamb", "largest"),
    [(0.01, True, False, 1.0), (0.0, True, False, 1e9), (0.0, False, True, None)],
)
def test_lamb_steps_by_the_ratio_of_norms(decay, average, use_lamb, largest):
    trained = Trained()
    options = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}
    fused = optimizers.FusedLamb(
        trained.weights,
        **options,
        weight_decay=decay,
        grad_averaging=average,
        use_lamb=use_lamb,
        max_grad_norm=largest,
    )
    states = [{} for _ in trained.exact]
    for t in range(1, 4):
        trained.new_gradients()
        fused.step()
        norm = torch.cat([each.grad.flatten() for each in trained.exact]).norm().item()
        clip = 1.0 if largest is None else max(1.0, norm / largest)
        rest = {"decay": decay, "average": average, "use_lamb": use_lamb}
        lamb_reference(trained.exact, states, clip, t, **options, **rest)
    assert_near(trained.weights, trained.exact, 1e-4)
    fused.zero_grad()
    assert [weight.grad for weight in trained.weights] == [None] * 3


def test_lambs_ratio_holds_a_weight_of_zeros():
    weight = torch.zeros(3, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizers.FusedLamb([weight]).step()
    assert weight.cpu().tolist() == [0.0] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_lambs_norm_is_what_gradients_are_divided_by(dtype):
    grads = [torch.full((2, 2), 3.0).to(dtype), torch.full((4,), 4.0).to(dtype)]  # norm 10
    for largest, expected in ((5.0, 2.0), (20.0, 1.0)):
        found = hpu_ops.optimizer_lamb_fused_norm(on_device(grads), largest)
        assert (found.dtype, found.cpu().tolist()) == (dtype, [expected])


def test_lamb_refuses_what_it_does_not_support():
    with pytest.raises(RuntimeError, match="FusedLamb does not support the AMSGrad variant"):
        optimizers.FusedLamb([torch.ones(1, device="hpu", requires_grad=True)], amsgrad=True)


def test_lars_puts_rate_and_ratio_into_the_gradients():
    trained = Trained((3, 4), (5,))
    inner = torch.optim.SGD(trained.weights, lr=0.5, weight_decay=0.1)
    seen = []
    inner.step = lambda: seen.append([group["weight_decay"] for group in inner.param_groups])
    lars = optimizers.FusedLars(inner, [1, 0], eeta=0.01, eps=1e-3)
    trained.new_gradients()
    lars.step()
    weight, other = trained.exact
    norms = weight.norm().item(), weight.grad.norm().item()
    trust = 0.01 * norms[0] / (norms[1] + 0.1 * norms[0] + 1e-3)
    expected = [(weight.grad + 0.1 * weight) * 0.5 * trust, other.grad * 0.5]
    assert_near([each.grad for each in trained.weights], expected)
    assert seen == [[0]]
    assert inner.param_groups[0]["weight_decay"] == 0.1
    lars.zero_grad()
    assert trained.weights[0].grad is None


def test_lars_takes_a_weight_of_zeros_at_the_plain_rate():
    weight = torch.zeros(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    inner = optimizers.FusedResourceApplyMomentum([weight], 0.25, momentum=0.5)
    optimizers.FusedLars(inner, [1]).step()
    assert weight.cpu().tolist() == [0.25, 0.25]


@EAGER
def test_the_operator_of_lars_refuses_lists_in_its_words():
    one, number = on_device(tensors((2,))), torch.ones(1, device="hpu")
    with pytest.raises(RuntimeError, match="params, grads and skip_masks vector inputs must have"):
        hpu_ops.optimizer_lars(one, one, [1, 1], 0.1, 0.0, 0.0, number)


def test_momentum_is_applied_with_the_signs_as_written():
    trained = Trained()
    optimizer = optimizers.FusedResourceApplyMomentum(trained.weights, 0.1, momentum=0.9)
    buffers = None
    for _ in range(3):
        trained.new_gradients()
        optimizer.step()
        grads = [each.grad for each in trained.exact]
        if buffers is None:
            buffers = grads
        else:
            pairs = zip(buffers, grads, strict=True)
            buffers = [0.9 * buffer - grad for buffer, grad in pairs]
        for one, buffer in zip(trained.exact, buffers, strict=True):
            one.data += buffer
    assert_near(trained.weights, trained.exact)
    one = trained.weights[0].detach()
    with pytest.raises(RuntimeError, match="params_momentum_buf_list must have twice as many"):
        run(hpu_ops.optimizer_resource_apply_momentum, [one], [one], 0.9)


@LAZY
def test_adagrad_is_that_of_torch():
    trained = Trained()
    options = {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}
    fused = optimizers.FusedAdagrad(trained.weights, **options)
    exact = torch.optim.Adagrad(trained.exact, **options)
    for _ in range(3):
        trained.new_gradients()
        assert fused.step() is None
        exact.step()
    assert_near(trained.weights, trained.exact)


@EAGER
def test_eager_mode_refuses_what_only_lazy_mode_has():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    with pytest.raises(RuntimeError) as refused:
        optimizers.FusedAdagrad([weight]).step()
    assert str(refused.value) == (
        "Frontend Op optimizer_adagrad_hpu_wrap not supported with new Eager mode"
    )
    for function in ("optimizer_sgd", "optimizer_sgd_momentum", "fused_ema", "fused_lars"):
        with pytest.raises(RuntimeError, match="not supported with new Eager mode"):
            getattr(_hpex_C, function)()


@LAZY
def test_lazy_mode_has_no_optimizers_of_eager_mode():
    names = "optimizer_sgd", "optimizer_sgd_momentum", "optimizer_ema", "optimizer_lars"
    assert [name for name in names if hasattr(hpu_ops, name)] == []


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))


def test_an_average_follows_a_models_floats():
    trained = model()
    exact = {name: value.double() for name, value in trained.state_dict().items()}
    average = FusedEMA(trained.to("hpu"), decay=0.5, updates=1999)
    assert not average.ema.training
    assert trained.training
    with torch.no_grad():
        for value in trained.state_dict().values():
            value.add_(1)
    average.update(torch.nn.DataParallel(trained))
    decay = 0.5 * (1 - torch.tensor(-1.0).double().exp().item())
    assert average.updates == 2000
    expected = {
        name: value if name.endswith("tracked") else value * decay + (value + 1) * (1 - decay)
        for name, value in exact.items()
    }
    found = average.ema.state_dict()
    assert_near([found[name] for name in expected], list(expected.values()), 1e-6)
    assert not any(each.requires_grad for each in average.ema.parameters())


def test_an_average_takes_attributes_and_a_valid_decay():
    trained = model()
    trained.names, trained.process_group, trained.stride = ["a"], "group", 2
    average = FusedEMA(model().to("hpu"))
    average.update_attr(trained, include=("names",))
    assert average.ema.names == ["a"]
    assert not hasattr(average.ema, "stride")
    average.update_attr(trained)
    assert average.ema.stride == 2
    assert not hasattr(average.ema, "process_group")
    with pytest.raises(ValueError, match=r"Invalid decay value: 1\.5"):
        FusedEMA(trained, 1.5)


@EAGER
def test_the_operator_of_averages_refuses_lists_in_its_words():
    one, number = on_device(tensors((2,))), torch.ones(1, device="hpu")
    with pytest.raises(RuntimeError, match="model_inputs and updated_ema vector inputs must have"):
        hpu_ops.optimizer_ema(one, one * 2, number)


def test_the_adams_of_the_package_are_those_of_torch():
    for name in ("Adam", "AdamW"):
        trained = Trained()
        ours = getattr(optimizers, name)(trained.weights, lr=0.1)
        exact = getattr(torch.optim, name)(trained.exact, lr=0.1)
        for _ in range(2):
            trained.new_gradients()
            ours.step()
            exact.step()
        assert_near(trained.weights, trained.exact)
        assert isinstance(ours, getattr(torch.optim, name))


@LAZY
def test_a_step_executes_what_was_recorded():
    weight = torch.ones(2, device="hpu", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    metric = hpu.metrics.metric_global("graph_compilation")
    before = copy.deepcopy(metric.stats())
    optimizers.FusedSGD([weight], 0.1).step()
    assert metric.stats() != before


def stepped(weight, grad, first, second):
    weights, moments = [weight.clone()], ([first.clone()], [second.clone()])
    number = torch.ones(1, device=weight.device)
    decay = (0.5,) if LAZY_MODE else (number * 0.5, True)
    hpu_ops.optimizer_adamw([grad], weights, *moments, -number, 0.9, 0.99, 1e-6, *decay)
    return weights[0], moments[0][0], moments[1][0]


def operands(rows, seed=0):
    weight, grad, first, second = tensors(*[(rows, 3)] * 4, seed=seed)
    return on_device([weight, grad, first, second.square()])


@pytest.mark.skipif(is_lazy(), reason="lazy mode has no compile backend")
def test_a_compiled_step_is_that_of_eager_mode():
    assert_compiles(stepped, operands(3), operands(5))


@LAZY
def test_a_replay_steps_the_captured_weights_again():
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
        weights = stepped(expected[0], fresh, expected[2], expected[3])
        expected = [weights[0], fresh, weights[1], weights[2]]
        for found, one in zip((weight, first, second), weights, strict=True):
            torch.testing.assert_close(found.cpu(), one.cpu())
