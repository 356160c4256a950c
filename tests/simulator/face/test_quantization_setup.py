"""Test setup of quantization: observers and scales, constants, ranges and the quantizer."""

import math

import pytest
import torch
from habana_frameworks.torch import core


@pytest.fixture(params=["AbsMaxObserver", "SimpleAbsMaxObserver"])
def kind(request):
    return getattr(core.observer, request.param)


@pytest.mark.parametrize(
    ("largest", "options", "scale"),
    [
        (448.0, {}, 1.0),
        (448.1, {}, 16.0),
        (28.0, {}, 0.0625),
        (1e9, {}, 16.0),
        (1e-9, {}, 2.0**-8),
        (28.0, {"backoff_margin": 1}, 1.0),
        (240.0, {"quant_min": -240, "quant_max": 240}, 1.0),
        (1e-9, {"eps": 0.5}, 1.0),
        (1e-9, {"dtype": "float8_e5m2"}, 1.0),
        (1e9, {"dtype": "float8_e5m2"}, 1.0),
    ],
)
def test_scale_is_rounded_up_to_a_hardware_scale(kind, largest, options, scale):
    if "dtype" in options:
        options = {**options, "dtype": getattr(torch, options["dtype"])}
    observer = kind(**options)
    data = torch.tensor([[0.5, -1.0], [0.0, 1.0]]) * largest
    assert observer(data) is data
    observer(data / 2)
    found, zero_point = observer.calculate_qparams()
    assert (found.item(), zero_point.item(), zero_point.dtype) == (scale, 0, torch.int64)


def test_observer_reads_device_tensors_and_skips_empty_ones(kind):
    observer = kind()
    observer(torch.ones(0))
    names = dict(observer.named_buffers())
    assert all(math.isinf(value.item()) for value in names.values())
    observer(torch.full((3,), -30.0, device="hpu", dtype=torch.bfloat16))
    assert observer.calculate_qparams()[0].item() == 1
    observer.reset_observer_state()
    assert all(math.isinf(value.item()) for value in dict(observer.named_buffers()).values())


def test_observers_store_maxima_in_buffers():
    both, largest = core.observer.AbsMaxObserver(), core.observer.SimpleAbsMaxObserver()
    for observer in (both, largest):
        observer(torch.tensor([-3.0, 2.0]))
        observer(torch.tensor([1.0]))
    assert {name: value.item() for name, value in both.named_buffers()} == {
        "min_val": -3,
        "max_val": 2,
    }
    assert {name: value.item() for name, value in largest.named_buffers()} == {"abs_max_val": 3}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("dtype", "dtype only supports torch.float8_e5m2 and torch.float8_e4m3fn."),
        ("qscheme", "qscheme only supports torch.per_tensor_symmetric."),
        ("reduce_range", "reduce_range only supports False."),
        ("is_dynamic", "is_dynamic only supports False."),
        ("quant_min", "quant_min is -7 and quant_max is 448.0; use a quant_min of -quant_max."),
    ],
)
def test_observers_refuse_unsupported_options(kind, option, message):
    value = {"dtype": torch.int8, "qscheme": torch.per_tensor_affine, "quant_min": -7}
    with pytest.raises(NotImplementedError) as refused:
        kind(**{option: value.get(option, True)})
    assert str(refused.value) == f"{kind.__name__}: {message}"


def test_constants_are_counted_and_numbered_once(capsys):
    model = torch.nn.Linear(2, 2)
    model.register_buffer("scale_in", torch.ones(1))
    before = core.quantization._get_marked_const_count()
    core.quantization._mark_params_as_const(model, only_scales=True, console_prints=True)
    assert core.quantization._get_marked_const_count() == before + 1
    assert capsys.readouterr().out == f"scale_in is constant {model.scale_in.const_id}\n"
    core.quantization._mark_params_as_const(model)
    core.quantization._mark_params_as_const(model)
    assert core.quantization._check_params_as_const(model) is None
    assert core.quantization._get_marked_const_count() == before + 3
    tensors = (model.weight, model.bias, model.scale_in)
    assert all(each.is_const_tensor is True for each in tensors)
    assert len({each.const_id for each in tensors}) == 3


def test_lazy_mode_marks_the_parameters_and_reads_the_ranges(lazy_process, tmp_path):
    (tmp_path / "ranges").write_text("net/conv -1 2.5\n")
    out = lazy_process(
        f"""
        import os
        from habana_frameworks.torch.core import _constants, quantization
        os.environ["PT_INFERENCE_RANGE_FILE"] = {str(tmp_path / "ranges")!r}
        model = torch.nn.Linear(2, 2)
        htcore.hpu_inference_initialize(model, mark_non_scales=False)
        print(quantization._get_marked_const_count())
        htcore.hpu_inference_initialize(model)
        print(quantization._get_marked_const_count(), _constants._ranges)
        htcore.hpu_teardown_inference_env()
        """
    )
    assert out[-2:] == ["0", "2 {'net/conv': (-1.0, 2.5)}"]


def test_invalid_line_of_ranges_is_reported(tmp_path, monkeypatch):
    (tmp_path / "ranges").write_text("conv 0 1\nconv 0\n")
    monkeypatch.setenv("PT_INFERENCE_RANGE_FILE", str(tmp_path / "ranges"))
    with pytest.raises(ValueError, match="ranges, line 2: 'conv 0' is not a range; write a name"):
        core.hpu_inference_initialize(torch.nn.Linear(1, 1))
    core.hpu_teardown_inference_env()


@pytest.mark.parametrize(
    ("text", "value"), [("ON", True), ("y", True), ("True", True), ("2", False), ("", False)]
)
def test_flags_of_the_environment_are_read_as_words(monkeypatch, text, value):
    monkeypatch.setenv("A_FLAG", text)
    assert core.quantization.check_env_flag("A_FLAG") is value
    assert core.quantization.check_env_flag("ANOTHER_FLAG", "1") is True


def test_quantizer_has_the_vendors_ranges():
    assert {
        torch.int8: (-128, 127),
        torch.float8_e5m2: (-240, 240),
        torch.float8_e4m3fn: (-240, 240),
    } == core.quantizer.QUANTIZER_MIN_MAX
    assert core.quantizer.habana_quantizer.get_supported_operators() == []


def test_exported_model_is_quantized():
    pt2e = core._pt2e.find("quantizer")
    if pt2e is None:
        with pytest.raises(ImportError, match="install torchao"):
            core.quantizer.habana_quantizer()
        with pytest.raises(ImportError, match="install torchao"):
            core.quantize_pt2e.prepare_pt2e(None, None)
        return
    tools, quantizer = core.quantize_pt2e, core.quantizer
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    data = torch.rand(2, 4)
    configured = quantizer.habana_quantizer().set_global(
        quantizer.habana_quant_config_symmetric(torch.float8_e4m3fn)
    )
    graph = tools.prepare_pt2e(tools.export(model, (data,)), configured)
    graph(data)
    graph = tools.convert_pt2e(graph)
    assert "quantize_per_tensor" in graph.code
    torch.testing.assert_close(graph(data), model(data), atol=0.1, rtol=0.1)


def test_graph_breaks_are_not_exported():
    with pytest.raises(NotImplementedError, match="can only export a model as a single graph"):
        core.quantize_pt2e.export(torch.nn.Linear(1, 1))


def test_exported_program_is_saved_and_loaded(tmp_path):
    model, data = torch.nn.Linear(2, 1).eval(), torch.rand(3, 2)
    path = str(tmp_path / "model.pt2")
    core.quantize_pt2e.save_pt2e(torch.export.export(model, (data,)), path)
    assert torch.equal(core.quantize_pt2e.load_pt2e(path).module()(data), model(data))


def test_flag_replaces_pytorchs_adam_and_adamw(forked_script):
    code = """
    import torch
    print(hasattr(torch.optim.AdamW, "_marks_steps"))
    from habana_frameworks.torch import overwrite_torch_optimizers
    from habana_frameworks.torch.hpu.metrics import metric_localcontext
    overwrite_torch_optimizers()
    overwrite_torch_optimizers()
    weight = torch.ones(3, device="hpu", requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.5)
    weight.sum().backward()
    with metric_localcontext("graph_compilation") as metric:
        optimizer.step()
        print(dict(metric.stats())["TotalNumber"])
    print(weight.round(decimals=4).tolist(), torch.optim.Adam.__mro__[1].__name__)
    """
    for lazy, flag in (("1", "yes"), ("0", "no")):
        out = forked_script(
            code, simulated=True, PT_HPU_LAZY_MODE=lazy, PT_HPU_REPLACE_ADAM_ADAMW=flag
        )
        assert out.splitlines() == [str(flag == "yes"), lazy, "[0.5, 0.5, 0.5] Adam"]
