"""Test `torch.hpu`: selection of the card, options, memory and random numbers."""

import contextlib
import importlib

import pytest
import torch
from habana_frameworks.torch import core, utils
from torch import hpu, nn

IMPORTS = """
import os
import torch
import habana_frameworks.torch.core as htcore
hpu = torch.hpu
def refused(function, *arguments):
    try:
        function(*arguments)
    except AssertionError as error:
        return str(error)
"""


@pytest.fixture
def lines(forked_script):
    """A function that runs code after `IMPORTS` in a new process and returns its output lines."""

    def run(code, **environment):
        return forked_script(IMPORTS + code, simulated=True, **environment).splitlines()

    return run


def test_init_acquires_the_card(lines):
    assert lines(
        "print(hpu.is_initialized(), hpu._initialized)\n"
        "hpu.init()\nprint(hpu.is_initialized(), hpu._initialized)"
    ) == ["False False", "True True"]


def test_set_device_chooses_a_listed_module(lines):
    code = """
hpu.set_device(1)
print(os.environ["HLS_MODULE_ID"])
print(refused(hpu.set_device, 0))
print("device_id=5," in hpu.get_device_properties(), hpu.current_device())
"""
    module, refusal, rest = lines(code, HABANA_VISIBLE_MODULES="3,5")
    assert module == "5"
    assert "module_id=3 is different from current_module_id=5" in refusal
    assert rest == "True 0"


def test_set_device_refuses_an_unlisted_module(lines):
    (refusal,) = lines("print(refused(hpu.set_device, 2))", HABANA_VISIBLE_MODULES="3,5")
    assert "idx=2 when only [3, 5]" in refusal


def test_device_index_is_explicit_or_that_of_the_acquired_card(lines):
    code = """
index = hpu._get_device_index
print(index(3), index("hpu:1"), index(torch.device("hpu", 2)), index("cpu", allow_cpu=True))
for arguments in (("cpu",), ("cuda", False, True), ("hpu",), (None,)):
    try:
        index(*arguments)
    except ValueError as error:
        print(error)
print(hpu.is_initialized())
print(index("hpu", optional=True), hpu.is_initialized(), index(None, True))
"""
    assert lines(code) == [
        "3 1 2 -1",
        "Expected a hpu device, but got: cpu",
        "Expected a hpu or cpu device, but got: cuda",
        "Expected a torch.device with a specified index or an integer, but got:hpu",
        "Expected a torch.device with a specified index or an integer, but got:None",
        "False",
        "0 True 0",
    ]


def test_device_accepts_0_and_the_chosen_module(lines):
    code = """
with hpu.device(0), hpu.device("hpu"), hpu.device(3):
    print(torch.ones(1, device="hpu").device)
print(refused(hpu.device, 4))
"""
    inside, refusal = lines(code, HLS_MODULE_ID="3")
    assert inside == "hpu:0"
    assert refusal.startswith("Invalid device id 4")


def test_device_of_a_tensor_is_device_0():
    with hpu.device_of(torch.ones(1, device="hpu")) as entered:
        assert entered is None
        assert hpu.current_device() == 0
    assert isinstance(hpu.device_of(torch.ones(1)), hpu.device)


def test_properties_depend_on_the_generation(lines):
    code = "print(hpu.get_device_properties())\nprint(hpu.get_device_capability(0))"
    properties, capability = lines(code, HPU_MAGIC_CARD="gaudi3", HPU_MAGIC_MEMORY="1GiB")
    pairs = dict(pair.split("=") for pair in properties.strip("()").split(", "))
    assert list(pairs) == [
        "sramBaseAddress",
        "dramBaseAddress",
        "sramSize",
        "dramSize",
        "tpcEnabledMask",
        "dramEnabled",
        "fd",
        "device_id",
        "device_type",
    ]
    assert (pairs["sramSize"], pairs["dramSize"]) == (str(96 << 20), str(1 << 30))
    assert (int(pairs["tpcEnabledMask"]), pairs["device_type"]) == (2**64 - 1, "5")
    assert capability.startswith("1.")


def test_functions_refuse_a_missing_card():
    beyond = hpu.device_count()
    for function in (hpu.get_device_capability, hpu.get_device_properties, hpu.get_device_name):
        with pytest.raises(AssertionError, match="Invalid device id"):
            function(beyond)


def test_different_cards_are_peers():
    assert hpu.can_device_access_peer(0, 1) is True
    for pair in ((0, 0), (0, hpu.device_count()), (-1, 0)):
        with pytest.raises(AssertionError, match="Invalid device id"):
            hpu.can_device_access_peer(*pair)


def test_set_deterministic_sets_pytorchs_option():
    before = torch.are_deterministic_algorithms_enabled()
    try:
        for value in (True, False):
            hpu.setDeterministic(value)
            assert torch.are_deterministic_algorithms_enabled() is value
            assert hpu.getDeterministic() is value
    finally:
        torch.use_deterministic_algorithms(before)


def test_autocast_functions_control_torch_autocast():
    assert not hpu.is_autocast_hpu_enabled()
    with torch.autocast("hpu", dtype=torch.float16):
        assert hpu.is_autocast_hpu_enabled()
        assert hpu.get_autocast_hpu_dtype() == torch.float16
    assert hpu.get_autocast_hpu_dtype() == torch.bfloat16
    a = torch.ones(2, 2, device="hpu")
    try:
        hpu.set_autocast_hpu_enabled(True)
        hpu.set_autocast_hpu_dtype(torch.float16)
        assert (a @ a).dtype == torch.float16
    finally:
        hpu.set_autocast_hpu_enabled(False)
        hpu.set_autocast_hpu_dtype(torch.bfloat16)
    assert (a @ a).dtype == torch.float32


SWITCHES = [
    ("dynamic_shape", "get_dynamic_shape_status", "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES"),
    ("inference_mode", "is_inference_mode_enabled", "PT_HPU_INFERENCE_MODE"),
    ("matmul3d_2d_reshape", "is_matmul3d_2d_reshape_enabled", "PT_HPU_MATMUL3D_2D_RESHAPE"),
]


@pytest.mark.parametrize(("name", "getter", "_variable"), SWITCHES)
def test_options_are_read_back(name, getter, _variable):
    assert getattr(hpu, getter)() is False
    getattr(hpu, f"enable_{name}")()
    assert [getattr(hpu, read)() for _, read, _ in SWITCHES].count(True) == 1
    assert getattr(hpu, getter)() is True
    getattr(hpu, f"disable_{name}")()
    assert getattr(hpu, getter)() is False


def test_options_start_with_the_environments_values(lines):
    getters = ", ".join(f"hpu.{getter}()" for _, getter, _ in SWITCHES)
    variables = {variable: "true" for _, _, variable in SWITCHES}
    variables["PT_HPU_INFERENCE_MODE"] = "0"
    assert lines(f"print({getters})", **variables) == ["True False True"]


def test_capture_disables_dynamic_shapes(lines):
    code = """
hpu.enable_dynamic_shape()
with hpu.graph(hpu.HPUGraph()):
    torch.ones(2, device="hpu") + 1
print(hpu.get_dynamic_shape_status())
"""
    assert lines(code, PT_HPU_LAZY_MODE="1") == ["False"]


def test_sync_debug_mode_is_an_environment_variable(monkeypatch):
    monkeypatch.delenv("PT_ENABLE_HABANA_STREAMASYNC", raising=False)
    with pytest.raises(KeyError, match="PT_ENABLE_HABANA_STREAMASYNC"):
        hpu.get_sync_debug_mode()
    monkeypatch.setenv("PT_ENABLE_HABANA_STREAMASYNC", "true")
    assert hpu.get_sync_debug_mode() == "true"
    hpu.set_sync_debug_mode(0)
    assert hpu.get_sync_debug_mode() == "0"


def test_recomputation_is_set_for_a_block_or_the_process():
    assert hpu.recompute_sdp_enabled() is True
    hpu.enable_recompute_sdp(False)
    with hpu.sdp_kernel():
        assert hpu.recompute_sdp_enabled() is True
        with contextlib.suppress(ZeroDivisionError), hpu.sdp_kernel(enable_recompute=False):
            assert hpu.recompute_sdp_enabled() is False
            raise ZeroDivisionError
        assert hpu.recompute_sdp_enabled() is True
    assert hpu.recompute_sdp_enabled() is False
    hpu.enable_recompute_sdp(True)
    assert hpu.recompute_sdp_enabled() is True


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("enable_optim_output_sif", ()),
        ("disable_optim_output_sif", ()),
        ("enable_quantization", ()),
        ("disable_quantization", ()),
        ("enable_const_section_serialization", ("constants", True, False)),
        ("disable_const_section_serialization", ()),
        ("set_mark_scale_const", (True,)),
        ("set_mark_non_scale_const", (False,)),
    ],
)
def test_options_without_effect_are_accepted(name, arguments):
    assert getattr(hpu, name)(*arguments) is None


class Branching(nn.Sequential):
    """A model that ``torch.fx`` cannot trace, because its branch depends on data."""

    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


def layers(kind=nn.Sequential):
    model = kind(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
    nn.init.uniform_(model[1].running_mean)
    nn.init.uniform_(model[1].running_var, 1, 2)
    return model


def test_inference_fuses_normalizations_with_convolutions():
    model = layers().eval()
    data = torch.rand(2, 1, 5, 5, device="hpu")
    try:
        fused = core.hpu_set_inference_env(model).to("hpu")
        model.to("hpu")
        assert hpu.is_inference_mode_enabled()
        assert hpu.is_matmul3d_2d_reshape_enabled()
        assert not any(isinstance(each, nn.BatchNorm2d) for each in _used(fused))
        assert isinstance(model[1], nn.BatchNorm2d)
        torch.testing.assert_close(fused(data).cpu(), model(data).cpu())
    finally:
        core.hpu_teardown_inference_env()
    assert not hpu.is_inference_mode_enabled()
    assert not hpu.is_matmul3d_2d_reshape_enabled()


def _used(fused):
    modules = dict(fused.named_modules())
    return [modules[node.target] for node in fused.graph.nodes if node.op == "call_module"]


@pytest.mark.parametrize(
    ("model", "device", "message"),
    [
        (layers().train(), "cpu", "Fusion is only applicable for eval mode\n"),
        (layers().eval(), "hpu", "This fusion pass is to be run for model on CPU, Skipping!\n"),
        (layers(Branching).eval(), "cpu", "torch.fx cannot fuse them: "),
        (nn.Linear(2, 2).eval(), "cpu", ""),
    ],
)
def test_model_that_cannot_be_fused_does_not_change(model, device, message, capsys):
    try:
        assert core.hpu_set_env(model.to(device)) is model
        printed = capsys.readouterr().out
        assert message in printed if message else not printed
        assert hpu.is_inference_mode_enabled()
    finally:
        core.hpu_reset_env()
    assert not hpu.is_inference_mode_enabled()


def test_inference_initialization_marks_constant_parameters(monkeypatch):
    module, marked = importlib.import_module("habana_frameworks.torch.hpu"), []
    monkeypatch.setattr(module, "set_mark_scale_const", lambda value: marked.append(value))
    monkeypatch.setattr(module, "set_mark_non_scale_const", lambda value: marked.append(value))
    assert core.hpu_inference_initialize(nn.Linear(1, 1)) is None
    core.hpu_inference_initialize(nn.Linear(1, 1), mark_scales=False, mark_non_scales=False)
    core.hpu_initialize(nn.Linear(1, 1), True, optimizer=None, args=None)
    assert hpu.is_inference_mode_enabled()
    core.hpu_teardown_inference_env()
    assert marked == [True, True, False, False, True, False]


def test_inference_warns_about_weight_sharing_only_in_lazy_mode(lines):
    code = "print(htcore.hpu_set_inference_env())"
    warning, none = lines(code, PT_HPU_LAZY_MODE="1")
    assert "PT_HPU_WEIGHT_SHARING=0" in warning
    assert none == "None"
    assert lines(code, PT_HPU_LAZY_MODE="1", PT_HPU_WEIGHT_SHARING="0") == ["None"]
    assert lines(code, PT_HPU_LAZY_MODE="0") == ["None"]


def test_import_sets_the_profile_unless_it_is_set(lines, monkeypatch):
    monkeypatch.delenv("HABANA_PROFILE", raising=False)
    code = "print(os.environ['HABANA_PROFILE'])"
    assert lines(code) == ["profile_api_light"]
    assert lines(code, HABANA_PROFILE="0") == ["0"]


def test_other_names_of_memory_functions():
    before = hpu.memory_usage()
    kept = torch.ones(1000, device="hpu")
    hpu.synchronize()
    assert hpu.memory_usage() - before == kept.untyped_storage().nbytes()
    limit = hpu.memory_stats()["Limit"]
    assert hpu.memory_reserved() == hpu.max_memory_reserved() == limit
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert hpu.memory_cached() == limit
    with pytest.warns(FutureWarning, match="max_memory_reserved"):
        assert hpu.max_memory_cached() == limit


def test_extended_summary_covers_the_whole_pool():
    kept = torch.ones(1 << 20, device="hpu")
    hpu.synchronize()
    stats, summary = hpu.memory_stats(), hpu._extended_memory_summary_dict()
    assert list(summary) == [
        "limit",
        "in_use",
        "persistent",
        "workspace",
        "last_workspace",
        "future",
        "max_cntgs_chunk",
        "max_in_use",
        "num_allocs",
        "num_free",
        "max_alloc_size",
        "active_allocs",
    ]
    assert summary["persistent"] == summary["in_use"] == stats["InUse"] >= kept.nbytes
    assert summary["max_cntgs_chunk"] + summary["in_use"] == summary["limit"] == stats["Limit"]
    assert summary["num_allocs"] - summary["num_free"] == summary["active_allocs"]
    table = hpu._extended_memory_summary().splitlines()
    assert table[:3] == hpu.memory_summary().splitlines()[:3]
    assert {len(line) for line in table} == {54}
    limit, active = table[3], table[-2]
    assert limit.split() == [
        "|limit",
        str(stats["Limit"]),
        f"({stats['Limit'] / 2**30:.2f})",
        "GB|",
    ]
    assert active.split() == ["|active_allocs", f"{stats['ActiveAllocs']}|"]


def test_formatted_statistics_have_one_line_per_key():
    stats, (header, *rows) = hpu.memory_stats(), hpu.formatted_memory_stats().splitlines()
    assert "device ID 0" in header
    assert [row[:39].rstrip() for row in rows] == list(stats)
    assert {row[39:41] for row in rows} == {":-"}
    limit = stats["Limit"]
    assert rows[0][41:] == (
        f"{limit} ({limit / 2**10:.2f} KB, {limit / 2**20:.2f} MB, {limit / 2**30:.2f} GB)"
    )
    assert rows[list(stats).index("NumFrees")][41:] == str(stats["NumFrees"])


def test_manual_seed_takes_its_argument_by_name():
    assert torch.manual_seed(seed=5).initial_seed() == 5
    first = torch.rand(4, device="hpu").tolist()
    torch.random.manual_seed(seed=5)
    assert torch.rand(4, device="hpu").tolist() == first


def test_seed_all_seeds_the_only_device():
    assert len(hpu.default_generators) == 1
    on_cpu = torch.random.get_rng_state()
    hpu.manual_seed_all(11)
    assert hpu.initial_seed() == hpu.default_generators[0].initial_seed() == 11
    assert torch.equal(torch.random.get_rng_state(), on_cpu)
    first = torch.rand(4, device="hpu").tolist()
    hpu.manual_seed(11)
    assert torch.rand(4, device="hpu").tolist() == first
    assert hpu.seed_all() is None
    assert hpu.initial_seed() != 11


def test_random_states_of_all_devices_are_those_of_the_only_device():
    states = hpu.get_rng_state_all()
    assert len(states) == 1
    first = torch.rand(4, device="hpu").tolist()
    assert torch.rand(4, device="hpu").tolist() != first
    hpu.set_rng_state_all(states)
    assert torch.rand(4, device="hpu").tolist() == first
    with pytest.raises(RuntimeError, match="hpu set_rng_state supports only device 0"):
        hpu.set_rng_state_all(states * 2)


def test_default_stream_is_0_for_any_current_stream():
    other = hpu.Stream()
    with hpu.stream(other):
        assert hpu.current_stream().stream_id == other.stream_id != 0
        assert hpu.default_stream().stream_id == hpu.default_stream().id() == 0
    assert hpu.current_stream() == hpu.default_stream()


def test_tensor_info_is_address_and_size():
    tensor = torch.ones(6, device="hpu")
    assert utils.debug.get_tensor_info(tensor[2:]) == (tensor.data_ptr(), 24)
    assert utils.experimental._data_ptr(tensor[2:]) == tensor.data_ptr() + 8
    assert utils.debug.get_tensor_info(torch.ones(6)) is None
    assert utils.debug.get_tensor_info(torch.ones(0, device="hpu")) is None


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ("gaudi", "2 False synDeviceGaudi"),
        ("gaudi2", "4 True synDeviceGaudi2"),
        ("gaudi3", "5 True synDeviceGaudi3"),
    ],
)
def test_device_type_depends_on_the_generation(lines, generation, expected):
    code = """
from habana_frameworks.torch.utils import experimental
kind = experimental._get_device_type()
print(int(kind), experimental._is_fp16_supported(), kind.name)
print(kind == getattr(experimental.synDeviceType, kind.name))
import torch
print(torch.hpu.is_initialized())  # other processes can still acquire the card
"""
    assert lines(code, HPU_MAGIC_CARD=generation) == [expected, "True", "False"]


FIRST_GENERATION = """
import re
import torch
from habana_frameworks.torch.hpex import normalization, optimizers
from habana_frameworks.torch.hpex.kernels import FusedSDPA, apply_rotary_pos_emb
ops = torch.ops.hpu
FP8 = torch.float8_e5m2
x = torch.ones(1, 2, 4, 8, device="hpu")
weight = torch.ones(8, device="hpu", requires_grad=True)
weight.grad = torch.ones_like(weight)
calls = [
    lambda: ops.cast_to_fp8_v2(x, None, False, False, FP8),
    lambda: ops.fp8_gemm_v2(x, False, x, True, None, torch.float32),
    lambda: ops.fp8_gemm_v2.scalar(x, False, x, True, None, torch.float32, 1.0, 1.0),
    lambda: FusedSDPA.apply(x, x, x),
    lambda: ops.convert_from_int4(x[0, 0].int(), x, None, torch.float32),
    lambda: ops.mixture_of_experts(
        x[0, 0], torch.zeros(4, 1, dtype=torch.long, device="hpu"), x[0, 0, :, :1],
        [x[0, 0].T], [x[0, 0].T], [x[0, 0]], False, "silu", 0, 0,
    ),
    lambda: optimizers.FusedAdamW([weight], moments_dtype=FP8).step(),
    lambda: normalization.FusedRMSNorm.apply(x.half(), weight.half(), 1e-6),
]
for call in calls:
    try:
        call()
        print("accepted")
    except RuntimeError as error:
        print(re.split("[:;]", str(error))[0], "GAUDI" in str(error))
with torch.inference_mode():
    try:
        calls[0]()
        print("accepted")
    except RuntimeError as error:
        print(error)
normal = normalization.FusedRMSNorm.apply(x, weight, 0.0)
normal.sum().backward()
print(normal.detach().cpu().unique().tolist())
optimizers.FusedAdamW([weight], lr=0.5, eps=0.0).step()
print(weight.detach().cpu().unique().tolist())
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_first_generation_refuses_operators_that_it_lacks(lines, lazy):
    found = lines(FIRST_GENERATION, HPU_MAGIC_CARD="gaudi", PT_HPU_LAZY_MODE=lazy)
    operators = (
        *("cast_to_fp8_v2", "fp8_gemm_v2", "fp8_gemm_v2", "sdpa_recomp_fwd", "convert_from_int4"),
        "mixture_of_experts",
    )
    later = "needs a GAUDI2 or later card, but this card is GAUDI"
    assert found == [
        *(f"torch.ops.hpu.{name} True" for name in operators),
        f"FP8 {later} True",
        f"float16 {later} True",
        "torch.ops.hpu.cast_to_fp8_v2: FP8 needs a GAUDI2 or later card, but this card is "
        "GAUDI; use bfloat16 with torch.autocast('hpu').",
        "[1.0]",
        "[0.5]",
    ]


TYPES_OF_LATER_GENERATIONS = """
import torch
device = torch.device("hpu")
x = torch.ones(32, 32, device=device)
makers = (
    lambda dtype: x.to(dtype),
    lambda dtype: torch.ones(2).to(dtype).to(device),
    lambda dtype: torch.empty(2, dtype=dtype, device=device),
    lambda dtype: torch.empty_strided((2,), (1,), dtype=dtype, device=device),
    lambda dtype: x.to(torch.int16 if dtype is torch.float16 else torch.uint8).view(dtype).clone(),
    lambda dtype: torch._scaled_mm(x.to(dtype), x.to(dtype).T, x[0, 0], x[0, 0]),
    lambda dtype: torch.nn.Linear(2, 2).to(dtype).to(device),
)
for dtype in (torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
    for make in makers:
        try:
            make(dtype)
            print("accepted", make.__code__.co_firstlineno, dtype)
        except RuntimeError as error:
            print(error)
host = torch.ones(2).half()
print(host.to(device, torch.bfloat16).tolist(), x.bfloat16().sum().item())
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_first_generation_refuses_tensors_of_later_types(lines, lazy):
    found = lines(TYPES_OF_LATER_GENERATIONS, HPU_MAGIC_CARD="gaudi", PT_HPU_LAZY_MODE=lazy)
    later = "needs a GAUDI2 or later card, but this card is GAUDI"
    assert found == [
        *[f"float16 {later}; use bfloat16."] * 7,
        *[f"FP8 {later}; use bfloat16 with torch.autocast('hpu')."] * 14,
        "[1.0, 1.0] 1024.0",
    ]


def test_legacy_loader_keeps_a_working_device(forked_script):
    code = """
import torch
from habana_frameworks.torch.utils.library_loader import is_habana_available, load_habana_module
print(is_habana_available(), load_habana_module(), torch.hpu.is_initialized())
print(torch.ones(1, device="hpu").device)
"""
    assert forked_script(code, simulated=True).splitlines() == ["True None False", "hpu:0"]
