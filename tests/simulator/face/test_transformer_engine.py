"""Test FP8 training against float64: results of layers, and scales.

Amaxes are exact. A scale can differ by the rounding of float32. A bfloat16 result can differ by
half a step (2**-8 of its value) plus the rounding of its sum (2**-16 of the largest result).
"""

import contextlib
import math

import habana_frameworks.torch.hpex.experimental.transformer_engine as te
import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch.hpex.experimental.transformer_engine import recipe

E5M2, E4M3 = torch.float8_e5m2, torch.float8_e4m3fn
LARGEST = {E5M2: 57344.0, E4M3: 240.0}  # of the second generation
FORMATS = {"E5M2": (E5M2, E5M2), "HYBRID": (E4M3, E5M2), "E4M3": (E4M3, E4M3)}


def rounded(tensor, scale, fp8):
    """Return a tensor after a cast to FP8 with `scale`, in float64."""
    factor = torch.tensor(scale, dtype=torch.float32).to(tensor.dtype)
    limit = LARGEST[fp8]
    cast = (tensor * factor).float().clamp(-limit, limit).to(fp8)
    return cast.double() / factor.double()


class Reference:
    """Delayed scaling of a tensor, in float64."""

    def __init__(self, fp8, margin=0, length=1, algorithm="most_recent"):
        self.fp8, self.margin, self.algorithm = fp8, margin, algorithm
        self.scale, self.history = 1.0, [0.0] * length

    def round(self, tensor):
        self.history[0] = max(self.history[0], tensor.double().abs().max().item())
        return rounded(tensor, self.scale, self.fp8)

    def begin_step(self):
        amax = max(self.history) if self.algorithm == "max" else self.history[0]
        if amax > 0:
            self.scale = LARGEST[self.fp8] / amax / 2**self.margin
        self.history = [0.0, *self.history[2:], self.history[0]][: len(self.history)]


def assert_near(found, expected, dtype):
    assert (found.dtype, found.shape) == (dtype, expected.shape)
    rtol = 2.0**-8 if dtype is torch.bfloat16 else 2.0**-16
    atol = 2.0**-16 * expected.abs().max().item()
    torch.testing.assert_close(found.cpu().double(), expected, rtol=rtol, atol=atol)


def layer(features=6, out=5, dtype=torch.float32, **options):
    torch.manual_seed(0)
    return te.Linear(features, out, params_dtype=dtype, **options)


def inputs(step, *shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(shape, generator=generator) * 2.0 ** (3 - step % 5)).to(dtype)


@pytest.mark.parametrize(
    ("length", "algorithm", "margin"),
    [(1, "most_recent", 0), (1, "max", 2), (3, "most_recent", 1), (3, "max", 0)],
)
@pytest.mark.parametrize("name", FORMATS)
def test_scales_follow_the_largest_magnitudes(name, length, algorithm, margin):
    forward, backward = FORMATS[name]
    options = margin, length, algorithm
    of_input, of_weight = Reference(forward, *options), Reference(forward, *options)
    of_grad = Reference(backward, *options)
    scaling = recipe.DelayedScaling(
        margin=margin,
        fp8_format=recipe.Format[name],
        amax_history_len=length,
        amax_compute_algo=algorithm,
    )
    module = layer()
    for step in range(6):
        for reference in (of_input, of_weight, of_grad):
            reference.begin_step()
        data, grad = inputs(step, 4, 6), inputs(step + 2, 4, 5)
        of_input.round(data)
        of_weight.round(module.weight.detach().cpu())
        of_grad.round(grad)
        with te.fp8_autocast(fp8_recipe=scaling):
            out = module(data.to("hpu"))
        out.backward(grad.to("hpu"))
        with torch.no_grad():
            module.weight -= 0.1 * module.weight.grad
        module.weight.grad = None
        of_forward, of_backward = module.fp8_meta["scaling_fwd"], module.fp8_meta["scaling_bwd"]
        for meta, references in ((of_forward, [of_input, of_weight]), (of_backward, [of_grad])):
            histories = torch.tensor([each.history for each in references]).t()
            assert torch.equal(meta.amax_history.cpu(), histories)
            scales = torch.tensor([each.scale for each in references])
            torch.testing.assert_close(meta.scale.cpu(), scales, rtol=1e-6, atol=0)
            torch.testing.assert_close(meta.scale_inv.cpu(), 1 / scales, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_all_three_products_multiply_rounded_tensors(name, dtype, monkeypatch):
    monkeypatch.setenv("PT_TE_FORCE_SR_BWD", "0")
    forward, backward = FORMATS[name]
    scaling = recipe.DelayedScaling(fp8_format=recipe.Format[name])
    module = layer(32, 24, dtype)
    references = [Reference(forward), Reference(forward), Reference(backward)]
    of_backward = Reference(backward), Reference(backward)  # of inputs and weights
    for step in range(3):  # in the first step, all scales are 1
        for reference in (*references, *of_backward):
            reference.begin_step()
        data, grad = inputs(step, 2, 7, 32, dtype=dtype), inputs(step + 1, 2, 7, 24, dtype=dtype)
        weight, bias = (each.detach().cpu() for each in (module.weight, module.bias))
        on_device = data.to("hpu").requires_grad_()
        with te.fp8_autocast(fp8_recipe=scaling):
            out = module(on_device)
        out.backward(grad.to("hpu"))
        x, w, g = (
            reference.round(each)
            for reference, each in zip(references, (data, weight, grad), strict=True)
        )
        assert_near(out, x @ w.t() + bias.double(), dtype)
        if forward != backward:  # operands need one dtype, so these are cast to the gradients'
            x, w = of_backward[0].round(data), of_backward[1].round(weight)
        assert_near(on_device.grad, g @ w, dtype)
        assert_near(module.weight.grad, g.flatten(0, 1).t() @ x.flatten(0, 1), dtype)
        assert_near(module.bias.grad, grad.double().sum((0, 1)), dtype)
        module.zero_grad()


def trained(enabled, steps=60):
    """Train a small network on the device and return its losses."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        te.Linear(16, 64, params_dtype=torch.bfloat16),
        torch.nn.Tanh(),
        te.LayerNormLinear(64, 1, params_dtype=torch.bfloat16),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = torch.randn(128, 16).bfloat16().to("hpu")
    labels = torch.sin(data.float().sum(1, keepdim=True) / 2)
    losses = []
    for _ in range(steps):
        with te.fp8_autocast(enabled, recipe.DelayedScaling(amax_history_len=4)):
            out = model(data)
        loss = (out.float() - labels).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_training_converges_like_in_bfloat16():
    in_fp8, in_bfloat16 = trained(True), trained(False)
    assert in_fp8 != in_bfloat16
    assert in_bfloat16[-1] < 0.4 * in_bfloat16[0]
    assert in_fp8[-1] == pytest.approx(in_bfloat16[-1], rel=0.25)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_layer_without_fp8_equals_pytorchs(dtype):
    module = layer(8, 3, dtype)
    plain = torch.nn.Linear(8, 3, device="hpu", dtype=dtype)
    plain.load_state_dict({"weight": module.weight, "bias": module.bias})
    data = inputs(1, 4, 8, dtype=dtype).to("hpu")
    results = []
    for model, regions in ((plain, []), (module, []), (module, [False]), (module, [True, False])):
        on_device = data.clone().requires_grad_()
        with contextlib.ExitStack() as stack:
            for enabled in regions:
                stack.enter_context(te.fp8_autocast(enabled))
            out = model(on_device)
        out.float().square().sum().backward()
        gradients = [each.grad for each in model.parameters()]
        results.append([each.detach().cpu() for each in (out, on_device.grad, *gradients)])
        model.zero_grad()
    for found in results[1:]:
        assert all(map(torch.equal, found, results[0]))
    assert module.fp8_meta == {}


def test_layer_without_fp8_computes_in_the_dtype_of_its_input():
    data = inputs(1, 4, 6, dtype=torch.bfloat16).to("hpu")
    assert layer()(data).dtype is torch.bfloat16
    assert te.LayerNormLinear(6, 3)(data).dtype is torch.bfloat16


def test_result_has_the_dtype_of_autocast_or_parameters_or_bfloat16():
    data = torch.ones(2, 6, device="hpu")
    with te.fp8_autocast():
        assert te.Linear(6, 5)(data).dtype is torch.bfloat16
        assert layer(dtype=torch.float32)(data).dtype is torch.float32
        with torch.autocast("hpu", dtype=torch.bfloat16):
            assert layer(dtype=torch.float32)(data).dtype is torch.bfloat16


def steps(module, scaling, modes):
    """Run steps with inputs and gradients of 2, 4, 8, ...

    Return the measured steps, and for each step the binary logarithm of the amax in its scales.
    """
    found = []
    for number, mode in enumerate(modes, 1):
        with te.fp8_autocast(fp8_recipe=scaling, force_measurement=mode):
            out = module(torch.full((2, 6), 2.0**number, device="hpu"))
        out.backward(torch.full_like(out, 2.0**number))
        found.append(
            [
                (
                    meta.amax_history[0, 0].item() == 2.0**number,
                    round(math.log2(limit / meta.scale[0].item())) if meta.scale[0] != 1 else 0,
                )
                for limit, meta in (
                    (240, module.fp8_meta["scaling_fwd"]),
                    (57344, module.fp8_meta["scaling_bwd"]),
                )
            ]
        )
    assert all(forward == backward for forward, backward in found)
    measured, followed = zip(*(forward for forward, _ in found), strict=True)
    return [number for number, each in enumerate(measured, 1) if each], list(followed)


@pytest.mark.parametrize(
    ("interval", "measured", "followed"),
    [
        (1, [1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (2, [2, 4, 6, 8], [0, 0, 2, 2, 4, 4, 6, 6, 8]),
        (3, [2, 5, 8], [0, 0, 0, 2, 2, 2, 5, 5, 5]),
        (4, [2, 6], [0, 0, 0, 0, 2, 2, 2, 2, 6]),
    ],
)
@pytest.mark.parametrize("algorithm", ["most_recent", "max"])
def test_second_step_of_an_interval_is_measured(interval, measured, followed, algorithm):
    scaling = recipe.DelayedScaling(interval=interval, amax_compute_algo=algorithm)
    assert steps(layer(), scaling, [None] * 9) == (measured, followed)


def test_region_can_force_measurement():
    modes = [None, None, None, True, False, None, False, None, None]
    found = steps(layer(), recipe.DelayedScaling(interval=2), modes)
    assert found == ([2, 4, 6, 8], [0, 0, 2, 2, 4, 4, 6, 6, 8])
    found = steps(layer(), recipe.DelayedScaling(interval=4), [True, True, False, False, True])
    assert found == ([1, 2, 5], [0, 1, 2, 2, 2])


def test_evaluation_is_not_measured():
    assert steps(layer().eval(), recipe.DelayedScaling(), [None, True]) == ([], [0, 0])


def test_measurement_can_be_forced_for_all_steps():
    state, scaling, module = (
        te.fp8.FP8GlobalStateManager,
        recipe.DelayedScaling(interval=8),
        layer(),
    )
    try:
        for value, expected in ((True, ([1, 2, 3], [0, 1, 2])), (False, ([], [3, 3, 3]))):
            state.set_measurement_mode(True, value)
            assert state.get_manual_measurement_mode() is value
            assert steps(module, scaling, [None] * 3) == expected
        state.set_measurement_mode(True)
        with te.fp8_autocast(force_measurement=False), te.fp8_autocast():
            assert state.get_manual_measurement_mode() is False
        assert state.get_manual_measurement_mode() is True
        state.set_measurement_mode(False)
        assert state.get_manual_measurement_mode() is None
        with te.fp8_autocast(force_measurement=True):
            assert state.get_manual_measurement_mode() is True
        assert steps(module, scaling, [None] * 4) == ([4], [3, 3, 3, 3])
        state.set_measurement_mode(True, False)
        state.fp8_autocast_enter(fp8_recipe=scaling)
    finally:
        state.reset_global_state()
    assert state.get_manual_measurement_mode() is None
    assert state.get_fp8_recipe() == recipe.DelayedScaling()
    assert steps(module, scaling, [None] * 9) == ([2], [4] * 8 + [2])  # counts from 1 again


@pytest.mark.parametrize(
    ("name", "variable", "stochastic"),
    [
        ("HYBRID", None, True),
        ("E5M2", None, False),
        ("E4M3", None, False),
        ("HYBRID", "0", False),
        ("E5M2", "1", True),
    ],
)
def test_gradients_round_stochastically_with_two_formats(name, variable, stochastic, monkeypatch):
    monkeypatch.delenv("PT_TE_FORCE_SR_BWD", raising=False)
    if variable is not None:
        monkeypatch.setenv("PT_TE_FORCE_SR_BWD", variable)
    scaling = recipe.DelayedScaling(fp8_format=recipe.Format[name])
    assert te.fp8.get_fp8_te_sr(scaling, fprop=True) is False
    assert te.fp8.get_fp8_te_sr(scaling, fprop=False) is stochastic
    module, found = layer(1, 4096, bias=False), []
    with torch.no_grad():
        module.weight.fill_(1.0)
    for value in (torch.ones(1, 1), torch.full((1, 1), 1.1)):
        data = value.to("hpu").requires_grad_()
        with te.fp8_autocast(fp8_recipe=scaling, force_measurement=False):
            out = module(data)
        out.backward(torch.full_like(out, 1.1))
        found.append([out.detach().cpu().unique().tolist(), module.weight.grad.cpu()])
        module.zero_grad()
    assert [len(of_forward) for of_forward, _ in found] == [1, 1]
    rounded = {"E4M3": [1.125], "E5M2": [1.0]}.get(name, [1.0])
    assert found[0][1].unique().tolist() == ([1.0, 1.25] if stochastic else rounded)
    if stochastic:
        assert found[0][1].mean().item() == pytest.approx(1.1, abs=0.01)


def test_variable_for_rounding_has_two_values(monkeypatch):
    monkeypatch.setenv("PT_TE_FORCE_SR_BWD", "yes")
    with pytest.raises(ValueError, match="PT_TE_FORCE_SR_BWD='yes' is not 0 or 1; use 1 to round"):
        te.fp8.get_fp8_te_sr(recipe.DelayedScaling(), fprop=False)


def test_module_used_twice_counts_one_step_and_the_larger_magnitude():
    module = layer(6, 6)
    with te.fp8_autocast(fp8_recipe=recipe.DelayedScaling(amax_history_len=3)):
        first = module(torch.full((1, 6), 7.0, device="hpu"))
        second = module(torch.full((1, 6), 3.0, device="hpu"))
    (2 * first + 5 * second).sum().backward()
    assert module.fp8_meta["scaling_fwd"].amax_history[:, 0].tolist() == [7, 0, 0]
    assert module.fp8_meta["scaling_bwd"].amax_history.tolist() == [[5], [0], [0]]


@pytest.mark.parametrize("value", [0.0, torch.inf, torch.nan], ids=str)
def test_zeros_and_nonfinite_values_do_not_change_scales(value):
    module = layer()
    for each in (4.0, value, value):
        with te.fp8_autocast():
            out = module(torch.full((2, 6), each, device="hpu"))
        out.backward(torch.full_like(out, each))
    assert module.fp8_meta["scaling_fwd"].scale[0].item() == 60.0
    assert module.fp8_meta["scaling_bwd"].scale.item() == LARGEST[E5M2] / 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_smallest_magnitudes_have_a_scale_with_a_finite_inverse(dtype):
    module = layer(dtype=dtype)
    tiny = torch.full((2, 6), 2.0**-126, device="hpu", dtype=dtype)
    tiny[0] = 0
    for _ in range(2):
        with te.fp8_autocast():
            out = module(tiny)
    assert module.fp8_meta["scaling_fwd"].scale[0].item() == 2.0**126
    expected = module.bias.detach().to(out.dtype).expand(2, 5)
    assert torch.equal(out.detach().cpu(), expected.cpu())


def test_layer_norm_linear_is_a_normalization_and_a_linear_layer(monkeypatch):
    torch.manual_seed(0)
    fused = te.LayerNormLinear(32, 8, eps=1e-3)
    norm, linear = torch.nn.LayerNorm(32, eps=1e-3, device="hpu"), te.Linear(32, 8)
    with torch.no_grad():
        for mine, its in (("weight", "layer_norm_weight"), ("bias", "layer_norm_bias")):
            getattr(fused, its).normal_()
            getattr(norm, mine).copy_(getattr(fused, its))
            getattr(linear, mine).copy_(getattr(fused, mine))
    monkeypatch.setenv("PT_TE_FORCE_SR_BWD", "0")
    for _ in range(2):
        outs = []
        for model in (fused, torch.nn.Sequential(norm, linear)):
            model.zero_grad()
            with te.fp8_autocast():
                out = model(inputs(1, 4, 32).to("hpu"))
            out.float().square().sum().backward()
            outs.append(out.detach().cpu())
        assert torch.equal(*outs)
    assert torch.equal(fused.layer_norm_weight.grad.cpu(), norm.weight.grad.cpu())
    assert torch.equal(fused.weight.grad.cpu(), linear.weight.grad.cpu())


@pytest.mark.parametrize("parameters", ["assigned", "passed"])
def test_layer_without_parameters_uses_those_of_another(parameters):
    owner, module = layer(), layer(skip_weight_param_allocation=True)
    assert list(module.parameters()) == []
    data = inputs(1, 3, 6).to("hpu")
    with te.fp8_autocast():
        if parameters == "assigned":
            module.weight, module.bias = owner.weight, owner.bias
            found = module(data)
        else:
            found = module(data, owner.weight, owner.bias)
        expected = owner(data)
    assert torch.equal(found.detach().cpu(), expected.detach().cpu())
    found.float().sum().backward()
    assert owner.weight.grad is not None


def test_frozen_parameters_and_inputs_get_no_gradient():
    for frozen in ("input", "weight", "bias"):
        module = layer()
        data = inputs(1, 3, 6).to("hpu").requires_grad_(frozen != "input")
        for name in ("weight", "bias"):
            getattr(module, name).requires_grad_(frozen != name)
        with te.fp8_autocast():
            module(data).float().sum().backward()
        found = {"input": data.grad, "weight": module.weight.grad, "bias": module.bias.grad}
        assert [name for name, each in found.items() if each is None] == [frozen]


@pytest.mark.parametrize("method", ["argument", "variable"])
def test_minimized_memory_does_not_change_gradients(method, monkeypatch):
    gradients, allocated = [], []
    for minimize in (False, True):
        if method == "variable":
            monkeypatch.setenv("PT_HPU_FP8_MINIMIZE_MEMORY", str(int(minimize)))
        options = {"minimize_memory": minimize} if method == "argument" else {}
        module = layer(256, 512, torch.bfloat16, **options)
        data = inputs(1, 8, 256, dtype=torch.bfloat16).to("hpu").requires_grad_()
        for _ in range(2):  # the second step has scales
            data.grad = module.weight.grad = module.bias.grad = None
            htcore.mark_step()
            before = torch.hpu.memory_allocated()
            with te.fp8_autocast():
                out = module(data)
            htcore.mark_step()
            allocated.append(torch.hpu.memory_allocated() - before)
            out.sum().backward()
        gradients.append([each.grad.cpu() for each in (data, module.weight, module.bias)])
    assert all(map(torch.equal, *gradients))
    assert allocated[1] - allocated[3] == 256 * 512 + 4  # the FP8 weight and its scale


@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize(("dtype", "nearest"), [(E5M2, 20.0), (E4M3, 18.0)], ids=str)
def test_casts_round_to_nearest_or_stochastically(dtype, nearest, scale):
    meta = te.utils.FP8TensorMeta(
        torch.full((2,), scale, device="hpu"),
        torch.ones(2, device="hpu"),
        torch.zeros(1, 2, device="hpu"),
    )
    data, casts = torch.full((64, 256), 18.5, device="hpu"), te.cpp_extensions
    for stochastic, measured in ((False, False), (True, False), (True, True)):
        cast = casts.cast_to_fp8(
            *(data, meta, 1, dtype), stochastic_rounding=stochastic, measure_amax=measured
        )
        wide = casts.cast_from_fp8(cast, meta, 1, dtype, torch.float32).cpu()
        if stochastic:
            assert wide.mean().item() == pytest.approx(18.5, abs=0.1)
            assert wide.unique().numel() == 2
        else:
            assert wide.unique().tolist() == [nearest]
        assert meta.amax_history.tolist() == [[0.0, 18.5 if measured else 0.0]]
    assert meta.scale_inv.tolist() == [1.0, 1 / scale]


def test_casts_read_and_update_the_tensor_meta():
    places = te.utils.FP8FwdTensors
    meta = te.utils.FP8TensorMeta()
    meta.scale = torch.tensor([1.0, 8.0], device="hpu")
    meta.scale_inv = torch.ones(2, device="hpu")
    meta.amax_history = torch.zeros(3, 2, device="hpu")
    data = inputs(2, 5, 3).to("hpu")
    cast = te.cpp_extensions.cast_to_fp8(data, meta, places.GEMM1_WEIGHT, E4M3)
    assert (cast.dtype, cast.shape) == (E4M3, data.shape)
    out = torch.empty_like(cast)
    for _ in range(2):  # a smaller amax does not replace the largest
        written = te.cpp_extensions.cast_to_fp8(data / 4, meta, places.GEMM1_WEIGHT, E4M3, out=out)
    assert written is out
    history = torch.zeros(3, 2)
    history[0, 1] = data.abs().max().cpu()
    assert torch.equal(meta.amax_history.cpu(), history)
    assert meta.scale_inv.tolist() == [1.0, 0.125]
    back = te.cpp_extensions.cast_from_fp8(cast, meta, places.GEMM1_WEIGHT, E4M3, torch.float32)
    assert torch.equal(back.cpu().double(), rounded(data.cpu(), 8.0, E4M3))
    with pytest.raises(ValueError, match=r"itype=torch\.float8_e5m2 is not the dtype of the input"):
        te.cpp_extensions.cast_from_fp8(cast, meta, 0, E5M2, torch.float32)
    with pytest.raises(ValueError, match=r"otype=torch\.int8 is not an FP8 dtype"):
        te.cpp_extensions.cast_to_fp8(data, meta, 0, torch.int8)
