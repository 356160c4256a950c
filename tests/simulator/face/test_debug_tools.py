"""Test the vendor's debugging packages, experimental functions and profilers."""

import csv
import json
import logging
import math
import pstats

import pytest
import torch
from habana_frameworks.torch.hw_utilization_metric import HWUtilizationMetrics
from habana_frameworks.torch.utils import debug, experimental
from habana_frameworks.torch.utils.debug import dynamo_utils
from habana_frameworks.torch.utils.debug.dynamo_utils import FxGraphAnalyzer


def test_logger_writes_and_stores_messages(caplog):
    log = debug.Logger("PT_TEST")
    debug.enable_logging("PT_TEST", "trace")
    log.set_store_data(True)
    log.trace("{} of {}", 1, 2)
    log.debug("{}")
    log.info("%d%%", 5)
    log.warn("50%")
    log.error("a", 1, [2])
    log.critical()
    texts = ["1 of 2", "", "5%", "50%", "a, 1, [2]", ""]
    assert log.data == [f"[PT_TEST] {text}" for text in texts]
    assert [each.getMessage() for each in caplog.records] == log.data
    levels = [5, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL]
    assert [each.levelno for each in caplog.records] == levels


def test_logger_stores_messages_below_its_level(caplog):
    log = debug.Logger("PT_TEST")
    debug.enable_logging("PT_TEST", "error")
    log.info("not stored")
    log.set_store_data(True)
    log.info("stored")
    log.set_store_data(False)
    log.error("written")
    assert log.data == ["[PT_TEST] stored"]
    assert [each.getMessage() for each in caplog.records] == ["[PT_TEST] written"]
    with pytest.raises(AssertionError, match="unsupported logger_level = loud"):
        debug.enable_logging("PT_TEST", "loud")


def test_profiled_function_writes_one_file_per_call_and_returns_none(tmp_path):
    folder = tmp_path / "profiles"

    @debug.cprofile(str(folder))
    def encode(value, *, fails=False):
        if fails:
            raise ZeroDivisionError
        return json.dumps(value)

    assert encode({}) is None
    with pytest.raises(ZeroDivisionError):
        encode({}, fails=True)
    first, second = sorted(folder.iterdir())
    assert first.name.startswith("encode_")
    assert second.name.startswith("encode_")
    assert "dumps" in {function for _, _, function in pstats.Stats(str(first)).stats}


def test_cprofile_refuses_a_file_as_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeError, match="exists but is not a directory"):
        debug.cprofile(str(tmp_path / "file"))


def test_messages_to_the_bridge_are_logged_without_formatting(caplog):
    caplog.set_level(logging.INFO, "habana_frameworks.torch")
    for write in (debug._hb_print, debug._hg_print, debug._mem_log):
        write("50% of {}")
    assert [each.getMessage() for each in caplog.records] == ["50% of {}"] * 3


def test_compiler_functions_return_nothing():
    assert debug._get_shape_agnostic_unsupported_ops() == set()
    assert debug._get_eager_compiler_unsupported_op_prefixes() == set()
    assert debug._is_enabled_weight_permute_pass() is False
    assert debug._is_enabled_synapse_layout_handling() is True
    for name in ("_flush_disk_cache", "_set_dynamic_mode", "_bridge_cleanup"):
        assert getattr(debug, name)() is None
    assert debug._towl_configure(True, "rank=0") is None


def test_lazy_collectives_follow_their_flag(monkeypatch):
    assert debug._is_enabled_lazy_collectives() is False
    monkeypatch.setenv("PT_HPU_ENABLE_LAZY_COLLECTIVES", "true")
    assert debug._is_enabled_lazy_collectives() is True


def test_memory_log_has_statistics_after_each_message(tmp_path, monkeypatch):
    monkeypatch.setenv("PT_HABANA_MEM_LOG_FILENAME", str(tmp_path / "log"))
    monkeypatch.setenv("RANK", "")
    debug._memstat_livealloc("only")
    assert (tmp_path / "log_0").read_text().startswith("only\nLimit : ")
    monkeypatch.setenv("RANK", "2")
    debug._memstat_devmem_start_collect("before")
    kept = torch.ones(1 << 16, device="hpu")
    torch.hpu.synchronize()
    debug._memstat_devmem_stop_collect("after")
    blocks = (tmp_path / "log_2").read_text().split("after\n")
    before, after = (dict(line.split(" : ") for line in each.splitlines()[-10:]) for each in blocks)
    assert blocks[0].startswith("before\n")
    assert int(after["InUse"]) - int(before["InUse"]) == kept.nbytes
    assert int(after["MaxInUse"]) == int(after["InUse"])
    assert list(after)[-1] == "TotActiveAllocs"


def test_terminated_process_leaves_a_message_in_the_logs(forked_script, tmp_path):
    code = """
    import os
    import torch
    from habana_frameworks.torch.utils.debug import dump_device_state_and_terminate
    child = os.fork()
    if not child:
        try:
            dump_device_state_and_terminate("failed")
        finally:
            print("still running")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    out = forked_script(code, simulated=True, HABANA_LOGS=str(tmp_path / "logs"))
    assert out.splitlines() == ["1"]
    for name in ("dfa_api.txt", "synapse_runtime.log"):
        assert (tmp_path / "logs" / name).read_text() == "failed\n"


def test_analyzer_counts_compiled_operators(compile_on_hpu):
    def forward(a, b):
        c = a + b
        c.add_(b)
        return torch.relu(c)

    with FxGraphAnalyzer() as outer, FxGraphAnalyzer(reset_dynamo=True) as inner:
        compiled = compile_on_hpu(forward)
        ones = torch.ones(3, device="hpu")
        assert compiled(ones, ones).tolist() == [3, 3, 3]
    compiled(torch.ones(3, 1, device="hpu"), ones)
    for analyzer in (outer, inner):
        (summary,) = analyzer.get_ops_summary()
        assert set(summary) == {"torch.ops.aten.add.Tensor", "torch.ops.aten.relu.default"}
        assert str(summary["torch.ops.aten.add.Tensor"]) == "{graph_count = 2, eager_count = 0}"
        assert analyzer.get_partition_num() == 1


@pytest.mark.parametrize(("all_results", "expected"), [(False, 0), (True, 1)])
def test_analyzer_counts_cpu_operators_on_request(compile_on_hpu, all_results, expected):
    with FxGraphAnalyzer(capture_non_hpu_output=all_results) as analyzer:
        compile_on_hpu(lambda a: a + 1)(torch.ones(3))
    (summary,) = analyzer.get_ops_summary()
    assert len(summary) == expected
    assert analyzer.get_partition_num() == expected


def test_analyzer_logs_operators_in_eager_mode(caplog):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.ops.aten.neg.default, (x,))
    node.meta["val"] = torch.ones(1, device="hpu")
    with dynamo_utils.FxGraphAnalyzer() as analyzer:
        dynamo_utils.note_graph(dynamo_utils.operators_to_note(graph), compiled=False)
    assert dynamo_utils.operators_to_note(graph) is None
    assert analyzer.get_partition_num() == 0
    (summary,) = analyzer.get_ops_summary()
    assert summary == {"torch.ops.aten.neg.default": dynamo_utils.OpCount(0, 1)}
    assert caplog.records[0].levelno == logging.CRITICAL
    assert "aten.neg.default" in caplog.records[0].getMessage()


def test_model_reports_compilations_by_module(lazy_process, tmp_path):
    out = lazy_process(
        f"""
        from habana_frameworks.torch.utils.experimental import detect_recompilation as tools
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).to("hpu")
        htcore.mark_step()
        watched = tools.detect_recompilation_auto_model(model, "Model", csv_out={str(tmp_path / "o")!r})
        assert watched is model
        for rows in (2, 2, 5):
            watched(torch.ones(rows, 4).to("hpu"))
        logs = watched.raw_logs()
        print(len(logs), all(line.startswith("[DETECT_RECOMPILE_AUTO] step ") for line in logs))
        watched.analyse_dynamicity()
        """  # noqa: E501
    )
    assert out[0] == "9 True"
    with (tmp_path / "o_1.csv").open() as file:
        head, *rows = csv.reader(file)
    assert head[:5] == ["Step", "Recompiling modules", "New in", "New out", "Class"]
    assert [row[:5] for row in rows] == [
        [step, f"Model.{number}", "True", "True", kind]
        for step in "13"
        for number, kind in ((0, "Linear"), (1, "ReLU"))
    ]
    with (tmp_path / "o_2.csv").open() as file:
        assert list(csv.reader(file)) == [
            ["Module name", "Recompile count"],
            ["Model.0", "2"],
            ["Model.1", "2"],
        ]
    assert out[1].startswith("\033[")
    assert out[-2:] == ["Model.0      2", "Model.1      2"]


def test_dynamicity_is_refused_in_distributed_processes(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for function in (experimental.data_dynamicity, experimental.detect_recompilation_auto_model):
        with pytest.raises(AssertionError, match="Expected 1x run, but torch being used in dist"):
            function([])


@pytest.mark.parametrize(
    ("shapes", "amount"), [(1, "no"), (2, "a little"), (6, "some"), (21, "a lot of")]
)
def test_dynamicity_is_described(capsys, shapes, amount):
    experimental.data_dynamicity([torch.ones(size + 1) for size in range(shapes)])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"There is {amount} dynamicity in input data shapes"


def test_changing_sizes_are_padded_to_maxlen():
    source = [torch.ones(2, 3, 7), torch.ones(2, 5, 7)]
    loader = experimental.const_shape_dataloader(source, 6)
    assert [tuple(batch.shape) for batch in loader] == [(2, 6, 7)] * 2
    assert [batch.sum().item() for batch in loader] == [42, 70]
    with pytest.raises(ValueError, match="maxlen=4 is too small for a batch with 5 elements"):
        experimental.const_shape_dataloader(source, 4)


def test_memory_reset_warns_and_keeps_tensors():
    kept = torch.ones(3, device="hpu")
    with pytest.warns(UserWarning, match="used only to reset the memory in case of testing"):
        experimental._reset_device_memory()
    assert kept.tolist() == [1, 1, 1]


def test_objects_without_memory_have_address_0():
    assert experimental._data_ptr("no tensor") == 0
    assert experimental._data_ptr(torch.ones(1, device="meta")) == 0


EMULATION = """
import os
from habana_frameworks.torch.utils.experimental import distributed_emulation as emulation
print(emulation.is_distributed_emulation_enabled())
for rank in "10":
    os.environ["RANK"] = rank
    child = os.fork()
    if not child:
        emulation.distributed_emulation_apply_if_enabled()
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("emulated", ["0", "1"])
def test_only_the_emulated_rank_continues(forked_script, emulated):
    flags = {"PT_HPU_EMULATE_DISTRIBUTED": emulated, "PT_HPU_EMULATE_DISTRIBUTED_SINGLE_RANK": "1"}
    out = forked_script(EMULATION, simulated=True, **flags)
    # The terminated process also flushes the script's buffers.
    assert str(emulated == "1") in out.splitlines()
    statuses = [line for line in out.splitlines() if line.isdigit()][-2:]
    assert statuses == (["7", "0"] if emulated == "1" else ["7", "7"])
    assert ("Single rank emulation mode, rank 0 terminating" in out) is (emulated == "1")


def test_low_overhead_profile_contains_compilations(lazy_process, tmp_path):
    out = lazy_process(
        f"""
        import os
        from habana_frameworks.torch.low_overhead_profiler import profiler
        os.chdir({str(tmp_path)!r})
        profiler.start()
        torch.ones(17, device="hpu").mul(3)
        htcore.mark_step()
        profiler.stop()
        torch.ones(18, device="hpu").mul(3)
        htcore.mark_step()
        profiler.flush()
        print(os.getpid())
        """
    )
    process = int(out[-1])
    assert str(process) in out[0]
    trace = json.loads((tmp_path / f"events_pid{process}.json").read_text())
    assert trace["displayTimeUnit"] == "ns"
    (event,) = trace["traceEvents"]
    assert (event["ph"], event["pid"]) == ("X", process)
    metrics = json.loads((tmp_path / f"metrics_pid{process}.json").read_text())
    assert metrics == {"compile": {"count": 1, "duration_us": event["dur"]}}


def test_forked_process_has_its_own_low_overhead_profile(forked_script, tmp_path):
    code = """
    import os
    import torch
    from habana_frameworks.torch.low_overhead_profiler import profiler
    profiler.start()
    torch.ones(3, device="hpu").mul(2)
    torch.hpu.synchronize()
    child = os.fork()
    if not child:
        os.chdir(os.environ["CHILD"])
        profiler.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), child)
    """
    out = forked_script(code, simulated=True, PT_HPU_LAZY_MODE="1", CHILD=str(tmp_path))
    status, child = out.splitlines()[-1].split()
    assert status == "0"
    assert json.loads((tmp_path / f"events_pid{child}.json").read_text())["traceEvents"] == []
    assert json.loads((tmp_path / f"metrics_pid{child}.json").read_text()) == {}


def test_utilization_of_a_simulated_card_is_nan(capsys):
    metrics = HWUtilizationMetrics()
    metrics.start()
    metrics.stop()
    metrics.resume()
    usage = metrics.get_usage()
    assert usage._fields == ("hl_smi", "esync")
    assert all(map(math.isnan, usage))
    metrics.display_usage()
    assert capsys.readouterr().out.count("N/A (a simulated card has no such counter)") == 2


@pytest.mark.parametrize(
    ("flag", "lazy", "loaded"),
    [("-1", "0", True), ("-1", "1", False), ("1", "1", True), ("0", "0", False)],
)
def test_autoload_follows_its_flag(forked_script, flag, lazy, loaded):
    code = """
    import sys
    from hpu_magic.simulator.finder import install_finder
    install_finder()
    from habana_frameworks import autoload
    getattr(autoload, "__autoload")()
    print("habana_frameworks.torch" in sys.modules)
    """
    out = forked_script(code, PT_HPU_AUTOLOAD=flag, PT_HPU_LAZY_MODE=lazy)
    assert out.splitlines()[-1] == str(loaded)
