"""Test %%hpu_profile and hpu_magic.profile."""

import json
import os
import sys

import pytest
from started_process import completed

import hpu_magic
from hpu_magic.runtime.measure.profiling import Operator, ProfileReport


@pytest.fixture
def multiplied(run, shell, torch, tmp_path):
    """The report of a cell with three matrix products, and its output."""
    shell.user_ns["x"] = torch.ones(64, 32, device="hpu")
    cell = run(
        f"%%hpu_profile --dir {tmp_path}/traces -o report\nfor _ in range(3):\n    y = x @ x.T"
    )
    assert cell.error is None
    return shell.user_ns["report"], cell


def test_operators_are_listed_with_calls_time_and_shapes(multiplied):
    report, cell = multiplied
    [product] = [operator for operator in report.operators if operator.name == "aten::mm"]
    assert product.calls == 3
    assert 0 < product.host + product.on_device <= report.seconds
    assert product.shapes == "[64, 32], [32, 64]"
    assert "simulated" in cell.out
    assert "aten::mm" in cell.out


def test_empty_columns_are_omitted(multiplied):
    report, cell = multiplied
    timed = any(operator.on_device for operator in report.operators)
    expected = ["operator", "calls", "host time"] + ["device time"] * timed + ["input shapes"]
    assert list(report.columns()) == expected
    assert {len(line) for line in report.lines()} == {len(expected)}
    assert ("device time" in cell.out) == timed
    bare = [Operator("aten::add", 1, 1e-6, 2e-6, "")]
    assert ProfileReport(bare).lines() == [("aten::add", "1", "1.00 µs", "2.00 µs")]
    assert (ProfileReport([]).columns(), ProfileReport([]).lines()) == ([], [])


def test_profiler_prints_nothing_in_a_script():
    code = "import torch, hpu_magic\nx = torch.ones(3)\nwith hpu_magic.profile(trace=False): x + 1"
    settings = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}
    done = completed(sys.executable, "-W", "always", "-c", code, env=settings)
    assert (done.returncode, done.stdout) == (0, "")
    at_load = ("SIMULATED", "does not support these features")
    lines = done.stderr.splitlines()
    assert [line for line in lines if not any(part in line for part in at_load)] == []


def test_trace_file_suits_tensorboard_and_perfetto(multiplied):
    report, cell = multiplied
    assert report.trace in cell.out
    assert report.trace.endswith(".pt.trace.json")
    with open(report.trace) as file:
        events = json.load(file)["traceEvents"]
    products = [event for event in events if event.get("name") == "aten::mm"]
    assert len(products) == 3
    assert all(event["ph"] == "X" and event["dur"] > 0 for event in products)
    assert overlapping(events) == []


def overlapping(events):
    """Return the names of slices that only partly overlap another slice of their track.

    Perfetto drops such slices.
    """
    tracks = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    names = []
    for track in tracks.values():
        ends = []
        for event in sorted(track, key=lambda event: (event["ts"], -event["dur"])):
            end = event["ts"] + event["dur"]
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            if ends and end > ends[-1] + 1e-3:  # microseconds
                names.append(event["name"])
            ends.append(end)
    return names


def test_no_file_is_written_without_a_trace(run, shell, torch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("%%hpu_profile --no-trace -o report\ntorch.ones(3)")
    assert shell.user_ns["report"].trace is None
    assert list(tmp_path.iterdir()) == []


def test_failed_cell_still_shows_its_operators(run, torch):
    cell = run("%%hpu_profile --no-trace\nimport torch\ntorch.ones(3)\n1 / 0")
    assert isinstance(cell.error, ZeroDivisionError)
    assert "aten::ones" in cell.out


def test_folder_that_cannot_be_created_is_rejected(run, rejected, tmp_path):
    (tmp_path / "file").write_text("")
    source = f"%%hpu_profile --dir {tmp_path}/file/traces\nran = True"
    assert "cannot be created" in rejected(source)
    assert run("'ran' in dir()").result is False


def test_context_manager_profiles_a_block(torch):
    with hpu_magic.profile(trace=False) as profile:
        torch.ones(8, device="hpu") * 2
    assert any(operator.name == "aten::mul" for operator in profile.report.operators)
