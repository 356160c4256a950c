"""Unmodified Intel Neural Compressor measures and quantizes on the device."""

import importlib.util
import json

import pytest
import torch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("neural_compressor") is None,
    reason="neural-compressor-pt is not installed; it needs Python 3.11",
)

MODEL = """
import json, os, sys
import torch
import habana_frameworks.torch.core as htcore
from neural_compressor.torch.quantization import (
    FP8Config, convert, finalize_calibration, prepare
)


class Matmul(torch.nn.Module):
    def forward(self, one, other, **options):
        return torch.matmul(one, other)


class Softmax(torch.nn.Module):
    def forward(self, scores, dim=None, invAttnHead=None):
        return torch.softmax(scores, dim)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.into = torch.nn.Linear(4 * 6 * 6, 24)
        self.scores, self.softmax, self.mix = Matmul(), Softmax(), Matmul()
        self.out = torch.nn.Linear(8, 5, bias=False)

    def forward(self, images):
        values = self.into(torch.relu(self.conv(images)).flatten(1)).view(-1, 3, 8)
        weights = self.softmax(self.scores(values, values.transpose(1, 2)), dim=-1)
        return self.out(self.mix(weights, values))


def net():
    torch.manual_seed(0)
    return Net().eval().to(torch.bfloat16).to("hpu")


def images(number, size=1.0):
    random = torch.Generator().manual_seed(number)
    return (torch.randn(4, 1, 6, 6, generator=random) * size).to(torch.bfloat16).to("hpu")
"""

MEASURE = (
    MODEL
    + """
htcore.hpu_set_inference_env()
config = FP8Config.from_json_file(os.environ["QUANT_CONFIG"])
assert config.measure and not config.quantize
model = net()
with torch.no_grad():
    plain = [model(images(number, number)) for number in (1, 2)]
    model = prepare(model, config)
    htcore.hpu_inference_initialize(model, mark_only_scales_as_const=True)
    for number, expected in zip((1, 2), plain):
        assert torch.equal(model(images(number, number)), expected)  # measuring changes nothing
finalize_calibration(model)
"""
)

# Stores inputs and outputs of each layer, for each method.
QUANTIZE = (
    MODEL
    + """
htcore.hpu_set_inference_env()
folder = os.environ["RESULTS"]
for method, scale_format, more in json.loads(os.environ["METHODS"]):
    config = json.load(open(os.environ["QUANT_CONFIG"]))
    config.update(scale_method=method, scale_format=scale_format, **more)
    model, calls = net(), {}
    weights = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    model = convert(model, FP8Config.from_dict(config))
    htcore.hpu_inference_initialize(model, mark_scales=True, mark_non_scales=False)

    def log(name):
        def after(module, inputs, output):
            calls[name] = [value.cpu() for value in (*inputs, output)]
        return after

    hooks = [module.register_forward_hook(log(name)) for name, module in model.named_children()]
    with torch.no_grad():
        result = model(images(2, 2.0))
    for each in hooks:
        each.remove()
    types = {name: (type(layer).__name__, str(layer.weight.dtype) if hasattr(layer, "weight")
                    else None) for name, layer in model.named_children()}
    torch.save((weights, calls, types), os.path.join(folder, f"{method}_{scale_format}.pt"))

# Capture or compile the last model, and run it with other values.
with torch.no_grad():
    expected = [model(images(number)).cpu() for number in (3, 4)]
    if htcore.is_lazy():
        again = torch.hpu.wrap_in_hpu_graph(model)
    else:
        again = torch.compile(model, backend="hpu_backend", fullgraph=True)
    found = [again(images(number)).cpu() for number in (3, 4)]
torch.save((found, expected), os.path.join(folder, "again.pt"))
"""
)

METHODS = [
    ("maxabs_hw", "scalar", {}),
    ("maxabs_hw", "const", {}),
    ("maxabs_pow2", "const", {}),
    ("maxabs_arbitrary", "scalar", {}),
    ("unit_scale", "scalar", {}),
    (
        *("act_maxabs_hw_weights_pcs_maxabs_pow2", "const"),
        {"blocklist": {"types": ["Conv2d"], "names": []}},  # no per-channel scales
    ),
]
DYNAMIC = ("maxabs_pow2", "scalar", {"dynamic_quantization": True})


def write_config(folder, mode):
    empty: dict[str, list[str]] = {"types": [], "names": []}
    settings = {"mode": mode, "observer": "maxabs", "allowlist": empty, "blocklist": empty}
    path = folder / f"{mode.lower()}.json"
    path.write_text(json.dumps({**settings, "dump_stats_path": str(folder / "stats" / "net")}))
    return path


class Runs:
    """Runs both steps in separate processes, and reads their results."""

    def __init__(self, folder, lazy, forked_script):
        self.folder, self._run = folder, forked_script
        self._environment = {"PT_HPU_LAZY_MODE": lazy, "LOGLEVEL": "ERROR"}
        self._environment |= {"PT_HPU_WEIGHT_SHARING": "0"}

    def run(self, code, mode, **environment):
        config = str(write_config(self.folder, mode))
        self._run(code, simulated=True, QUANT_CONFIG=config, **self._environment, **environment)

    def measured(self):
        file = self.folder / "stats" / "net_hooks_maxabs.json"
        return json.loads(file.read_text())["Nodes"]

    def quantized(self, method, scale_format):
        return torch.load(self.folder / f"{method}_{scale_format}.pt")


@pytest.fixture(scope="module", params=["0", "1"], ids=["eager", "lazy"])
def runs(request, tmp_path_factory, forked_script):
    runs = Runs(tmp_path_factory.mktemp("inc"), request.param, forked_script)
    runs.run(MEASURE, "MEASURE")
    methods = [*(METHODS if request.param == "0" else METHODS[:1]), DYNAMIC]
    runs.methods = [each[:2] for each in methods if each is not DYNAMIC]
    runs.run(QUANTIZE, "QUANTIZE", METHODS=json.dumps(methods), RESULTS=str(runs.folder))
    return runs


def test_measurement_is_the_largest_magnitude_of_a_layer(runs):
    measured = runs.measured()
    assert set(measured) == {"conv", "into", "scores", "softmax", "mix", "out"}
    weights, _, _ = runs.quantized("maxabs_hw", "scalar")
    for name in ("conv", "into", "out"):
        [[largest]] = measured[name]["params"]["weight"]
        assert largest == weights[f"{name}.weight"].abs().max().item()
    random = [torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(n)) for n in (1, 2)]
    largest = max((each * size).bfloat16().abs().max() for size, each in enumerate(random, 1))
    assert measured["conv"]["inputs"] == [[[largest.item()]]]


def nearest(values):
    """Round to the nearest E4M3 number, at most 240, and return float64."""
    return values.double().clamp(-240, 240).float().to(torch.float8_e4m3fn).double()


def scale(method, largest, backoff):
    """Return a method's scale for a maximum, with a margin of 1/backoff."""
    exact = (torch.as_tensor(largest).bfloat16() / (240 * backoff)).double()
    if method == "maxabs_arbitrary":
        return exact
    exponent = torch.log2(exact).ceil()
    if method == "maxabs_hw":  # scales of the hardware: 2^-8, 2^-4, 1, 2^4
        exponent = ((exponent / 4).ceil() * 4).clamp(-8, 4)
    return torch.exp2(exponent) if method != "unit_scale" else torch.ones_like(exact)


def quantized(values, factor):
    """Return values after a cast to FP8 and back; the inverse scale and product are bf16."""
    inverse = (1 / factor).bfloat16()
    return nearest(values.bfloat16() * inverse) * factor


def reference(name, method, measured, weights, inputs):
    """Return the result of a quantized layer in float64."""
    of_weights = "maxabs_pow2" if method.startswith("act_") else method
    method = "maxabs_hw" if method.startswith("act_") else method
    if name == "softmax":  # only the output is FP8
        room = scale(method, measured["outputs"][0][0][0], 0.25)
        return quantized(torch.softmax(inputs[0].double(), -1).bfloat16(), room)
    operands = [
        quantized(value, scale(method, largest[0][0], 0.25))
        for value, largest in zip(inputs, measured["inputs"], strict=True)
    ]
    if len(operands) == 2:
        return operands[0] @ operands[1]
    weight = weights[f"{name}.weight"]
    largest = weight.abs().amax(1, keepdim=True) if of_weights != method else weight.abs().max()
    weight = quantized(weight, scale(of_weights, largest, 0.5))
    if name == "conv":
        plain = torch.nn.functional.conv2d(operands[0], weight, padding=1)
        return plain + weights["conv.bias"].double().reshape(-1, 1, 1)
    plain = operands[0] @ weight.T
    bias = weights.get(f"{name}.bias")
    return plain if bias is None else plain + bias.double()


def test_layer_computes_in_fp8_with_the_measured_scales(runs):
    # The product and its sum with the bias are each rounded to bf16.
    measured = runs.measured()
    for method, scale_format in runs.methods:
        weights, calls, types = runs.quantized(method, scale_format)
        blocked = {"conv"} if method.startswith("act_") else set()
        assert {name for name, (kind, _) in types.items() if "Patched" not in kind} == blocked
        assert all(types[name][1] == "torch.float8_e4m3fn" for name in {"into", "out"} - blocked)
        for name in set(calls) - blocked:
            *inputs, output = calls[name]
            expected = reference(name, method, measured[name], weights, inputs)
            found = output.double()
            assert found.isfinite().all()
            error = (found - expected).abs().max() / expected.abs().max()
            # Exponentials differ slightly, so softmax may round to another FP8 number.
            limit = 2.0**-4 if name == "softmax" else 2.0**-8
            assert error <= limit, (method, scale_format, name, error)


def test_scales_as_numbers_and_as_tensors_are_equivalent(runs):
    if ("maxabs_hw", "const") not in runs.methods:
        pytest.skip("tested in eager mode")
    one, other = (runs.quantized("maxabs_hw", kind)[1] for kind in ("scalar", "const"))
    for name in one:
        assert all(torch.equal(a, b) for a, b in zip(one[name], other[name], strict=True))


def test_dynamic_scales_need_no_measurements(runs):
    weights, calls, types = runs.quantized(*DYNAMIC[:2])
    dynamic = {name for name, (kind, _) in types.items() if "Patched" in kind}
    assert dynamic == {"into", "out", "scores", "mix"}
    for name in ("into", "out"):
        operands, output = calls[name]
        factor = scale("maxabs_pow2", operands.abs().max(), 0.5)
        weight = weights[f"{name}.weight"]
        weight = quantized(weight, scale("maxabs_pow2", weight.abs().max(), 0.5))
        expected = quantized(operands, factor) @ weight.T
        if name == "into":
            expected = expected + weights["into.bias"].double()
        error = (output.double() - expected).abs().max() / expected.abs().max()
        assert error <= 2.0**-8, name


def test_quantized_model_is_captured_and_compiled(runs):
    found, expected = torch.load(runs.folder / "again.pt")
    assert not torch.equal(*expected)
    assert all(torch.equal(each, other) for each, other in zip(found, expected, strict=True))
