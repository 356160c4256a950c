"""%%hpu_profile and hpu_magic.profile."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from IPython.core.error import UsageError

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
    [product] = [one for one in report.operators if one.name == "aten::mm"]
    assert product.calls == 3
    assert 0 < product.host + product.on_device <= report.seconds
    assert product.shapes == "[64, 32], [32, 64]"
    assert "simulated" in cell.out
    assert "aten::mm" in cell.out


def test_a_column_in_which_nothing_would_stand_is_left_out(multiplied):
    report, cell = multiplied
    timed = any(one.on_device for one in report.operators)
    expected = ["operator", "calls", "host time"] + ["device time"] * timed + ["input shapes"]
    assert list(report.columns()) == expected
    assert {len(line) for line in report.lines()} == {len(expected)}
    assert ("device time" in cell.out) == timed
    bare = [Operator("aten::add", 1, 1e-6, 2e-6, "")]
    assert ProfileReport(bare).lines() == [("aten::add", "1", "1.00 µs", "2.00 µs")]
    assert (ProfileReport([]).columns(), ProfileReport([]).lines()) == ([], [])


def test_the_profiler_itself_prints_nothing_in_a_script():
    code = "import torch, hpu_magic\nx = torch.ones(3)\nwith hpu_magic.profile(trace=False): x + 1"
    settings = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code],
        env=settings,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert [line for line in done.stderr.splitlines() if "SIMULATED" not in line] == []


def test_trace_is_written_in_the_form_that_tensorboard_and_perfetto_read(multiplied):
    report, cell = multiplied
    assert report.trace in cell.out
    assert report.trace.endswith(".pt.trace.json")
    with open(report.trace) as file:
        events = json.load(file)["traceEvents"]
    products = [one for one in events if one.get("name") == "aten::mm"]
    assert len(products) == 3
    assert all(one["ph"] == "X" and one["dur"] > 0 for one in products)
    assert cut_across(events) == []


def cut_across(events):
    """Return the slices that only partly lie within another of their track: Perfetto drops them."""
    tracks = {}
    for one in events:
        if one["ph"] == "X":
            tracks.setdefault((one["pid"], one["tid"]), []).append(one)
    found = []
    for track in tracks.values():
        open_until = []
        for one in sorted(track, key=lambda one: (one["ts"], -one["dur"])):
            end = one["ts"] + one["dur"]
            while open_until and open_until[-1] <= one["ts"]:
                open_until.pop()
            if open_until and end > open_until[-1] + 1e-3:  # of a microsecond
                found.append(one["name"])
            open_until.append(end)
    return found


def test_without_a_trace_nothing_is_written(run, shell, torch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("%%hpu_profile --no-trace -o report\ntorch.ones(3)")
    assert shell.user_ns["report"].trace is None
    assert list(tmp_path.iterdir()) == []


def test_error_in_the_cell_is_the_users_and_what_ran_is_shown(run, torch):
    cell = run("%%hpu_profile --no-trace\nimport torch\ntorch.ones(3)\n1 / 0")
    assert isinstance(cell.error, ZeroDivisionError)
    assert "aten::ones" in cell.out


def test_folder_that_cannot_be_made_is_refused(run, tmp_path):
    (tmp_path / "file").write_text("")
    cell = run(f"%%hpu_profile --dir {tmp_path}/file/traces\nran = True")
    assert isinstance(cell.error, UsageError)
    assert "cannot be created" in cell.err
    assert run("'ran' in dir()").result is False


def test_plain_context_manager(torch):
    with hpu_magic.profile(trace=False) as profile:
        torch.ones(8, device="hpu") * 2
    assert any(one.name == "aten::mul" for one in profile.report.operators)
