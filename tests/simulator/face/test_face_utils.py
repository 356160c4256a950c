"""Test typed tensors, recompilation tools, and the bridge's banner."""

import collections
import copy
import importlib
import inspect
import json
import os
import pstats
import struct
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from habana_frameworks.torch import torch as bound
from habana_frameworks.torch import utils
from habana_frameworks.torch.core.step_closure import _mark_step_if_lazy
from habana_frameworks.torch.utils.version_checker import is_pytorch_at_least
from torch import hpu

# Runs in a separate process with a first-generation card.
PLAIN = """
import json, os, sys, threading, warnings
from concurrent.futures import ThreadPoolExecutor
import torch
from hpu_magic.simulator import cards
sys.stderr = sys.stdout
warnings.simplefilter("always")
found = {}
os.environ["PT_HPU_LAZY_ACC_PAR_MODE"] = "late"

def warned(function):
    with warnings.catch_warnings(record=True) as caught:
        result = function()
    return result, [str(each.message) for each in caught]

def autocast(dtype, enabled=True):
    with torch.autocast("hpu", dtype=dtype, enabled=enabled):
        return str((torch.ones(2, 2, device="hpu") @ torch.ones(2, 2, device="hpu")).dtype)

def switched_on(dtype):
    torch.hpu.set_autocast_hpu_dtype(dtype)
    torch.hpu.set_autocast_hpu_enabled(True)
    try:
        return str((torch.ones(2, 2, device="hpu") @ torch.ones(2, 2, device="hpu")).dtype)
    finally:
        torch.hpu.set_autocast_hpu_enabled(False)

print("before")
context, found["at the context"] = warned(lambda: torch.autocast("hpu", dtype=torch.float16))
found["acquired by autocast"] = torch.hpu.is_initialized()

# Several threads create their first tensor before one of them has acquired a card.
together, acquire = threading.Barrier(4), cards.acquire

def acquire_together():
    card = acquire()
    together.wait(30)
    return card

cards.acquire = acquire_together
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda size: torch.ones(size, device="hpu"), range(4)))
cards.acquire = acquire
found["raced"] = not together.broken

for name, call in {
    "float16": lambda: autocast(torch.float16),
    "float16 off": lambda: autocast(torch.float16, enabled=False),
    "bfloat16": lambda: autocast(torch.bfloat16),
    "float16 set": lambda: switched_on(torch.float16),
    "bfloat16 set": lambda: switched_on(torch.bfloat16),
    "cpu": lambda: torch.autocast("cpu", dtype=torch.float16)._enabled,
}.items():
    found[name] = warned(call)

import torch_hpu
for name in ("is_available", "device_count", "get_device_name"):
    found[name] = warned(getattr(torch_hpu, name))

from habana_frameworks.torch import _banner
for rank, flag in (("1", ""), ("1", "1"), ("0", "")):
    print("rank", rank, "flag", flag)
    os.environ.update(RANK=rank, PT_HPU_PRINT_DEVICE_CONFIG=flag)
    _banner.show()

found["limit"] = torch.hpu.memory_stats()["Limit"]
found["shared"] = torch.hpu.memory._get_hlml_shared_object_name()
found["exists"] = os.path.exists("/dev/shm/" + found["shared"])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def plain(forked_script):
    environment = {"HPU_MAGIC_CARD": "gaudi", "PT_HPU_POOL_MEM_ACQUIRE_PERC": "50", "RANK": ""}
    printed = forked_script(PLAIN, simulated=True, **environment)
    return json.loads(printed.splitlines()[-1]), printed


def test_first_use_of_the_card_prints_the_configuration_once(plain):
    assert plain[0]["raced"]
    printed = plain[1].split("before\n")[1].split("rank 1 flag \n")[0]
    lines = printed.splitlines()
    assert printed.count("HPU PT BRIDGE CONFIGURATION ON RANK = 0") == 1
    values = dict(line.split(" = ", 1) for line in lines[1:] if line.startswith(" PT_HPU_"))
    assert len(values) == 12
    assert values[" PT_HPU_LAZY_MODE"] == "0"
    assert values[" PT_HPU_POOL_MEM_ACQUIRE_PERC"] == "50"
    assert values[" PT_HPU_LAZY_ACC_PAR_MODE"] == "1"  # changed too late
    assert f" CPU cores : {os.cpu_count()}" in lines
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines())
    gigabytes = int(total.split()[1]) / 2**20
    assert f" CPU RAM   : {gigabytes:.0f} GB" in lines


def test_pool_uses_the_share_in_its_flag(plain):
    assert plain[0]["limit"] == 16 << 30


def test_invalid_share_is_refused(monkeypatch):
    flags = importlib.import_module("habana_frameworks.torch._flags")
    for text in ("0", "101", "half", ""):
        monkeypatch.setitem(flags.IN_FORCE, "PT_HPU_POOL_MEM_ACQUIRE_PERC", text)
        with pytest.raises(ValueError, match=f"PERC='{text}' is not a percentage"):
            flags.pool_percentage()


def test_other_ranks_print_only_on_request(plain):
    _, default, requested, first = plain[1].split("\nrank ")
    assert "CONFIGURATION" not in default
    assert requested.count("CONFIGURATION ON RANK = 1") == 1
    assert first.count("CONFIGURATION ON RANK = 0") == 1


IN_IPYTHON = """
import os, sys, torch
sys.stderr = sys.stdout
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_cell("import torch; torch.ones(1, device='hpu')")
print("acquired", torch.hpu.is_initialized())
os.environ["PT_HPU_PRINT_DEVICE_CONFIG"] = "true"
from habana_frameworks.torch import _banner
_banner.show()
"""


def test_ipython_prints_the_configuration_only_on_request(forked_script):
    default, requested = forked_script(IN_IPYTHON, simulated=True, hides_torch=True).split(
        "acquired True"
    )
    assert "CONFIGURATION" not in default
    assert requested.count("CONFIGURATION ON RANK = 0") == 1


def test_first_generation_autocast_refuses_float16(plain):
    found, _ = plain
    assert found["acquired by autocast"] is False
    text = "In HPU autocast, but the target dtype is not supported. Disabling autocast."
    assert [each.splitlines()[0] for each in found["at the context"]] == [text]
    dtype, (warning,) = found["float16"]
    assert (dtype, warning.splitlines()[0]) == ("torch.float32", text)
    assert found["float16 off"] == ["torch.float32", []]
    assert found["bfloat16"] == ["torch.bfloat16", []]
    assert found["cpu"] == [True, []]
    dtype, (warning,) = found["float16 set"]
    assert dtype == "torch.bfloat16"
    assert "torch.float16 is not supported; keeping torch.bfloat16." in warning
    assert found["bfloat16 set"] == ["torch.bfloat16", []]


def test_later_generations_accept_float16():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast("hpu", dtype=torch.float16):
            a = torch.ones(2, 2, device="hpu")
            assert (a @ a).dtype == torch.float16


def test_old_package_forwards_and_warns(plain):
    for name, value in (("is_available", True), ("device_count", 8), ("get_device_name", "GAUDI")):
        result, (warning,) = plain[0][name]
        assert result == value
        assert warning == f"torch_hpu.{name} is deprecated; use torch.hpu.{name}."


TYPES = {
    "BFloat16": "bfloat16",
    "Bool": "bool",
    "Byte": "uint8",
    "Char": "int8",
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
}


@pytest.mark.parametrize(("name", "dtype"), TYPES.items())
def test_typed_tensors_create_and_recognize_tensors(name, dtype):
    kind, dtype = getattr(hpu, f"{name}Tensor"), getattr(torch, dtype)
    assert kind.dtype == dtype
    tensor = kind([1, 0])
    assert (tensor.tolist(), tensor.dtype, tensor.device.type) == ([1, 0], dtype, "hpu")
    assert tensor.type() == f"torch.hpu.{kind.__name__}"
    matching = [each for each in TYPES if isinstance(tensor, getattr(hpu, f"{each}Tensor"))]
    assert matching == [name]
    assert not isinstance(tensor.cpu(), kind)
    for empty in (kind(2, 3), kind(torch.Size([2, 3]))):
        assert (empty.shape, empty.dtype) == ((2, 3), dtype)


def test_typed_tensor_is_empty_or_shares_memory_with_its_argument():
    assert hpu.FloatTensor().shape == (0,)
    tensor = hpu.IntTensor((5, 6))
    assert tensor.tolist() == [5, 6]
    same = hpu.IntTensor(tensor)
    same[0] = 7
    assert tensor.tolist() == [7, 6]


def test_typed_tensors_refuse_other_types_and_devices():
    for other in (torch.ones(2), torch.ones(2, dtype=torch.half, device="hpu")):
        with pytest.raises(RuntimeError, match=f"got a {other.dtype} tensor on {other.device}"):
            hpu.FloatTensor(other)
    with pytest.raises(RuntimeError, match="on hpu, not on cpu"):
        hpu.FloatTensor(2, device="cpu")
    with pytest.raises(TypeError, match=r"sizes or a sequence, but got 2\.5"):
        hpu.FloatTensor(2.5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), {}),
        (((),), {}),
        (("Size",), {}),
        ((np.int64(3),), {}),
        ((np.int64(3), 2), {}),
        ((np.array(3),), {}),
        ((np.ones((2, 2)),), {}),
        ((range(3),), {}),
        ((2,), {"device": None}),
        ((), {"size": (2, 3)}),
        ((), {"size": []}),
        ((True,), {}),
        ((None,), {}),
        ((2.5,), {}),
        ((1, 2.5), {}),
        (("Size", 1), {}),
        (({1},), {}),
        ((2,), {"size": (2,)}),
        ((), {"size": 3}),
    ],
)
def test_typed_tensors_accept_the_same_arguments_as_on_the_cpu(arguments, named):
    arguments = [torch.Size([]) if isinstance(each, str) else each for each in arguments]

    def shape_of(kind):
        try:
            return kind(*arguments, **named).shape
        except TypeError:
            return "refused"

    assert shape_of(hpu.FloatTensor) == shape_of(torch.FloatTensor)


def test_conversion_by_type_compiles_on_the_cpu():
    step = torch.compile(
        lambda a: torch.Tensor.type(a, torch.float64), fullgraph=True, backend="eager"
    )
    assert step(torch.ones(2)).dtype == torch.float64


def test_stream_info_identifies_a_stream():
    stream = hpu.Stream()
    number, index, kind = hpu.get_stream_info(stream)
    assert (number, index) == (stream.stream_id, 0)
    assert hpu.Stream(stream_id=number, device_index=index, device_type=kind) == stream
    assert hpu.get_stream_info(hpu.default_stream())[0] == 0


def test_modules_are_the_same_under_both_names():
    for name in ("events", "graphs", "memory", "metrics", "random", "streams"):
        ours = importlib.import_module(f"habana_frameworks.torch.hpu.{name}")
        assert importlib.import_module(f"torch.hpu.{name}") is ours is getattr(hpu, name)


def test_lightning_habana_finds_the_hpu_module_by_its_name():
    import habana_frameworks.torch.hpu as torch_hpu

    assert torch_hpu.hpu is torch.hpu


def test_timer_measures_seconds():
    with utils.internal.Timer() as timer:
        assert timer.seconds == 0
        time.sleep(0.05)
    assert 0.05 <= timer.seconds < 5
    before = timer.seconds
    with pytest.raises(ZeroDivisionError), timer:
        raise ZeroDivisionError
    assert 0 < timer.seconds < before


def test_folders_contain_headers_and_library():
    assert (Path(utils.lib_utils.get_include_dir()) / "lazy" / "recorder.h").exists()
    assert list(Path(utils.lib_utils.get_lib_dir()).glob("hpu_magic_engine*.so"))


def test_deprecated_module_warns():
    name = "habana_frameworks.torch.utils.distributed_utils"
    sys.modules.pop(name, None)
    with pytest.warns(FutureWarning, match="distributed_utils is deprecated"):
        importlib.import_module(name)


def test_profile_is_controlled_by_calls(tmp_path):
    with pytest.raises(RuntimeError, match="call _setup_profiler"):
        utils.profiler._start_profiler()
    with pytest.raises(RuntimeError, match="call _start_profiler"):
        utils.profiler._stop_profiler()
    api = importlib.import_module("habana_frameworks.torch").profiler.ProfilerApi
    with pytest.warns(FutureWarning, match="setup_profiler is deprecated"):
        api.setup_profiler(activities=[torch.profiler.ProfilerActivity.CPU])
    with pytest.warns(FutureWarning, match="start_profiler is deprecated"):
        api.start_profiler()
    with pytest.raises(RuntimeError, match="already running"):
        utils.profiler._start_profiler()
    torch.ones(3, device="hpu") * 2
    with pytest.warns(FutureWarning, match="stop_profiler is deprecated"):
        profile = api.stop_profiler()
    assert "aten::mul" in {each.key for each in profile.key_averages()}
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    assert "traceEvents" in json.loads((tmp_path / "trace.json").read_text())


def test_cprofile_writes_one_file_per_block(tmp_path):
    paths = []
    for _ in range(2):
        with utils.debug.cprofile(str(tmp_path / "profiles")) as path:
            json.dumps({})
        paths.append(path)
    assert sorted((tmp_path / "profiles").iterdir()) == sorted(paths)
    assert {path.suffix for path in paths} == {".prof"}
    called = {function for _, _, function in pstats.Stats(str(paths[0])).stats}
    assert "dumps" in called


def test_cleared_recipes_are_compiled_again(lazy_process):
    out = lazy_process(
        """
        from habana_frameworks.torch.hpu.metrics import metric_localcontext
        from habana_frameworks.torch.utils import debug

        def step():
            with metric_localcontext("graph_compilation") as metric:
                torch.ones(3, device="hpu").mul(2).add(1)
                htcore.mark_step()
            return dict(metric.stats())["TotalNumber"], debug._get_jit_cache_size()

        _, size = step()
        print(step() == (0, size), size > 0)
        debug.clear_dynamic_bucket_recipe_info()
        print(debug._get_jit_cache_size() == size)
        debug._clear_jit_cache()
        print(debug._get_jit_cache_size(), *step(), *step())
        """
    )
    assert out == ["True True", "True", "0 1 1 0 1"]


def test_eager_mode_has_no_recipes():
    torch.ones(3, device="hpu").mul(2)
    assert utils.debug._get_jit_cache_size() == 0


def test_model_reports_compilations_by_shape(lazy_process):
    out = lazy_process(
        """
        from habana_frameworks.torch.utils import experimental
        model = torch.nn.Linear(4, 1).to("hpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        watched = experimental.detect_recompilation_auto_model(model)

        def step(rows):
            watched(torch.ones(rows, 4, device="hpu")).sum().backward()
            htcore.mark_step()
            optimizer.step()
            optimizer.zero_grad()
            htcore.mark_step()

        for rows in (2, 2, 2, 5, 2):
            step(rows)
        watched(torch.ones(7, 4, device="hpu"))
        records = watched.report()
        print([(each.shapes, each.calls) for each in records])
        print([each.compilations > 0 for each in records], watched.in_features)
        print(watched.state_dict().keys() == model.state_dict().keys())
        before = [each.compilations for each in records]
        step(2)
        torch.ones(11, device="hpu").mul(2).tolist()
        print([each.compilations for each in watched.report()] == [before[0] + 1, *before[1:]])
        """
    )
    header, *rows = out[:4]
    assert header == "calls  compilations  shapes"
    assert [row.split("  ")[-1] for row in rows] == ["[2, 4]", "[5, 4]", "[7, 4]"]
    assert out[4] == "[(((2, 4),), 4), (((5, 4),), 1), (((7, 4),), 1)]"
    assert out[5:7] == ["[True, True, True] 4", "True"]
    assert out[-1] == "True"


def test_watched_model_keeps_its_names_and_can_be_copied():
    model = torch.nn.Linear(4, 1).to("hpu")
    watched = utils.experimental.detect_recompilation_auto_model(model)
    names = ["0.weight", "0.bias"]
    outer = torch.nn.Sequential(watched)
    assert [name for name, _ in outer.named_parameters()] == names
    assert list(outer.state_dict()) == names
    outer.load_state_dict(outer.state_dict())
    watched.kept = 1
    assert model.kept == 1
    assert list(inspect.signature(watched.forward).parameters) == ["input"]
    twin = copy.deepcopy(watched)
    with torch.no_grad():
        twin.weight.zero_()
        twin.bias.zero_()
    assert twin(torch.ones(2, 4, device="hpu")).tolist() == [[0], [0]]
    assert [each.calls for each in twin.report()] == [1]
    assert watched.report() == []


def test_key_of_a_shape_has_its_structure(capsys):
    get_shape = utils.experimental.detect_recompilation.get_shape
    x = torch.zeros(2, 3, device="hpu")
    assert get_shape(x) == (2, 3)
    assert get_shape([x, (x, x[0])]) == ((2, 3), ((2, 3), (3,)))
    assert capsys.readouterr().out == ""
    assert get_shape({"mask": x, 1: [x]}) == ((hash("mask"), (2, 3)), (hash(1), ((2, 3),)))
    assert get_shape(0.5) == hash(0.5)
    assert capsys.readouterr().out.splitlines() == [
        "'mask' of type str has no shape; using its hash.",
        "1 of type int has no shape; using its hash.",
        "0.5 of type float has no shape; using its hash.",
    ]
    with pytest.raises(TypeError, match="unhashable"):
        get_shape({1, 2})


def test_shapes_of_a_loader_are_reported(capsys):
    batches = [
        {"text": torch.ones(4, 3), "labels": [torch.ones(4)]},
        {"text": torch.ones(4, 5), "labels": [torch.ones(4)]},
        {"text": torch.ones(4, 5), "labels": [torch.ones(4)]},
    ]
    counts = utils.experimental.data_dynamicity(batches)
    assert counts == {((4, 5), (4,)): 2, ((4, 3), (4,)): 1}
    assert capsys.readouterr().out.splitlines() == [
        "batches  shapes",
        "      2  [4, 5], [4]",
        "      1  [4, 3], [4]",
        "There is a little dynamicity in input data shapes",
    ]


class Batches:
    """A loader of batches; more can be added between two iterations."""

    def __init__(self, *batches):
        self.batches = list(batches)

    def __iter__(self):
        return iter(self.batches)


Pair = collections.namedtuple("Pair", "text labels")


def test_loader_of_constant_shapes_pads_and_omits_a_short_last_batch():
    source = Batches(
        collections.UserDict(text=torch.ones(2, 1), labels=torch.ones(2, 1), name="a"),
        collections.UserDict(text=torch.ones(2, 3), labels=torch.ones(2, 3), name="b"),
        collections.UserDict(text=torch.ones(1, 4), labels=torch.ones(1, 4), name="c"),
    )
    loader = utils.experimental.const_shape_dataloader(source, pad_value={"labels": -100})
    first, second = loader
    assert len(loader) == 2
    assert (first["name"], second["name"]) == ("a", "b")
    assert first["text"].tolist() == [[1, 0, 0, 0]] * 2
    assert first["labels"].tolist() == [[1, -100, -100, -100]] * 2
    assert source.batches[0]["text"].shape == (2, 1)
    assert len(utils.experimental.data_dynamicity(loader)) == 1
    source.batches.append(collections.UserDict(text=torch.ones(2, 6), labels=torch.ones(2, 2)))
    *_, last = loader
    assert (last["text"].shape, last["labels"].shape) == ((2, 6), (2, 4))


def test_batches_keep_their_type():
    source = Batches(
        Pair(torch.zeros(2, 1), [torch.zeros(2)]), Pair(torch.zeros(2, 2), [torch.zeros(2)])
    )
    padded, unchanged = utils.experimental.const_shape_dataloader(source, pad_value=9)
    assert isinstance(padded, Pair)
    assert padded.text.tolist() == [[0, 9], [0, 9]]
    assert unchanged.text is source.batches[1].text


def test_loaders_without_possible_constant_shapes_are_refused():
    make = utils.experimental.const_shape_dataloader
    with pytest.raises(TypeError, match="list_iterator can only be read once"):
        make(iter([torch.ones(1)]))
    with pytest.raises(ValueError, match="Batch 0 has 1 samples, but other batches have 2"):
        make([torch.ones(1), torch.ones(2)])
    with pytest.raises(
        ValueError, match="has 1 dimensions in one batch and 2 dimensions in another"
    ):
        make([torch.ones(1), torch.ones(1, 1)])
    with pytest.raises(ValueError, match="no batch that contains tensors"):
        make([])


def test_packer_separates_tensors_from_their_containers(capsys):
    pair = collections.namedtuple("pair", "first second")
    a, b, c = (torch.full((n,), float(n), device="hpu") for n in (1, 2, 3))
    outs = (a, [b, 7, None], {"scores": pair(c, a), "loss": 0.5})
    packer = hpu.graphs.TensorPacker()
    tensors, metadata = packer.pack(outs)
    assert isinstance(tensors, tuple)
    assert [id(each) for each in tensors] == [id(each) for each in (a, b, c, a)]
    assert metadata == (0, [1, 7, None], {"scores": pair(2, 3), "loss": 0.5})
    rebuilt = packer.unpack(tuple(each * 2 for each in tensors), metadata)
    assert type(rebuilt[2]["scores"]) is pair
    assert rebuilt[1][1:] == [7, None]
    assert rebuilt[2]["loss"] == 0.5
    found = [rebuilt[0], rebuilt[1][0], *rebuilt[2]["scores"]]
    assert [each.tolist() for each in found] == [[2.0], [4.0] * 2, [6.0] * 3, [2.0]]
    assert packer.unpack(*packer.pack(a)) is a
    assert packer.pack(5) == ((), 5)
    assert capsys.readouterr().out == ""
    hpu.TensorPacker(is_out_pack=True, verbose=True).pack([a, b])
    assert capsys.readouterr().out == "TensorPacker packed 2 tensors: [0, 1]\n"


def test_bridge_exports_torch_and_checks_its_version():
    assert bound is torch
    release = torch.__version__.partition("+")[0]
    major, minor, *_ = release.split(".")
    assert is_pytorch_at_least(release)
    assert is_pytorch_at_least(torch.__version__)
    assert is_pytorch_at_least(f"{release}+cpu")
    assert is_pytorch_at_least("2.5.1")
    assert is_pytorch_at_least(f"{major}.{minor}")
    assert not is_pytorch_at_least(f"{major}.{int(minor) + 1}.0")
    with pytest.raises(ValueError, match="Invalid version"):
        is_pytorch_at_least("newest")


def test_step_is_marked_only_in_lazy_mode(lazy_process, caplog):
    assert _mark_step_if_lazy() is None
    assert caplog.text == ""
    assert lazy_process(
        """
        from habana_frameworks.torch.core.step_closure import _mark_step_if_lazy
        from hpu_magic.simulator import engine
        x = torch.ones(2, device="hpu") + 1
        print(engine.load().pending_operations() > 0)
        _mark_step_if_lazy()
        print(engine.load().pending_operations())
        """
    ) == ["True", "0"]


def test_compute_stream_is_the_default_stream():
    assert utils.experimental._compute_stream() == hpu.default_stream().hpu_stream == 0


def test_bytes_in_use_are_shared_with_other_processes():
    name = hpu.memory._get_hlml_shared_object_name()
    assert hpu.memory._get_hlml_shared_object_name() == name
    read = lambda: struct.unpack("<3Q", Path("/dev/shm", name).read_bytes())  # noqa: E731
    version, first, _ = read()
    assert version == 1
    assert abs(time.time() - first) < 60
    kept = torch.ones(1 << 18, device="hpu")
    hpu.synchronize()
    deadline = time.monotonic() + 60
    while read()[1] == first and time.monotonic() < deadline:
        time.sleep(0.05)
    _, later, in_use = read()
    assert first < later
    assert kept.nbytes <= in_use <= hpu.memory_stats()["MaxInUse"]
    assert [each.name for each in threading.enumerate()].count("hpu-memory") == 1


def test_shared_object_is_removed_with_its_process(plain):
    found, _ = plain
    assert found["exists"] is True
    assert not Path("/dev/shm", found["shared"]).exists()
