"""Test the parts of benchmark reports that do not depend on a quiet machine."""

import ast
import json
import os
import sys
from pathlib import Path

import pytest
from started_process import completed

from bench.harness import Figure, in_turn, quiet_ratio
from bench.loading import timed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("value", "target", "holds"), [(1.0, 1.05, True), (1.05, 1.05, True), (1.06, 1.05, False)]
)
def test_figure_holds_up_to_its_target(value, target, holds):
    assert Figure("step", value, "ratio", target).holds is holds


def test_compared_functions_run_in_alternating_order():
    calls = []
    pairs = in_turn(lambda: calls.append("a"), lambda: calls.append("b"), 4)
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab" + "ba"
    assert len(pairs) == 4


def test_disturbed_rounds_do_not_change_a_ratio():
    quiet = [(1.0, 2.0)] * 12
    disturbed = [(1.0, 9.0), (7.0, 2.0), (30.0, 2.0), (1.0, 12.0), (5.0, 50.0), (1.0, 8.0)]
    assert quiet_ratio(quiet) == 2.0
    assert quiet_ratio(disturbed) == 2.0
    assert quiet_ratio([(1.0, 3.0)] * 12 + disturbed) == 3.0


def test_loading_is_timed_with_bytecode_despite_the_environment(tmp_path, monkeypatch):
    (tmp_path / "fresh_source.py").write_text("seconds = 0.5\n")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert timed("import fresh_source; print(fresh_source.seconds)") == [0.5]
    assert [path.name for path in tmp_path.glob("__pycache__/*")] == [
        f"fresh_source.{sys.implementation.cache_tag}.pyc"
    ]


def test_memory_in_use_equals_the_live_storages_after_mixed_work(tmp_path):
    cards = {"HPU_MAGIC_SIMULATOR": "1", "HPU_MAGIC_CARDS_DIR": str(tmp_path / "cards")}
    command = sys.executable, "-m", "bench", "memory"
    done = completed(*command, cwd=ROOT, env=os.environ | cards, timeout=None)
    assert done.returncode == 0, done.stderr
    [figure] = [json.loads(line) for line in done.stdout.splitlines()]
    assert (figure["name"], figure["value"]) == ("memory in use - live storages", 0)


def test_figures_are_not_times():
    # Times depend on the machine, so they are measured relative to other work.
    calls = [
        node
        for path in (ROOT / "bench").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Figure"
    ]
    units = {getattr(call.args[2], "value", None) for call in calls if len(call.args) > 2}
    assert {"ratio", "%", "bytes"} <= units
    assert not units & {"s", "ms", "µs", "us", "ns"}
