"""What the bench reports, where it can be told without a quiet machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.harness import Figure, in_turn, median_difference, median_ratio

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("value", "target", "holds"), [(1.0, 1.05, True), (1.05, 1.05, True), (1.06, 1.05, False)]
)
def test_figure_holds_up_to_its_target(value, target, holds):
    assert Figure("step", value, "ratio", target).holds is holds


def test_both_run_in_every_round_and_take_turns_at_going_first():
    calls = []
    pairs = in_turn(lambda: calls.append("a"), lambda: calls.append("b"), 4)
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab" + "ba"
    assert len(pairs) == 4


def test_medians_compare_within_a_round():
    pairs = [(1.0, 2.0), (10.0, 20.0), (4.0, 100.0)]
    assert median_ratio(pairs) == 2.0
    assert median_difference(pairs) == 10.0


def run_bench(*families, cards):
    return subprocess.run(
        [sys.executable, "-m", "bench", *families],
        cwd=ROOT,
        env={**os.environ, "HPU_MAGIC_SIMULATOR": "1", "HPU_MAGIC_CARDS_DIR": str(cards)},
        capture_output=True,
        text=True,
    )


def test_memory_in_use_equals_the_live_storages_after_mixed_work(tmp_path):
    done = run_bench("memory", cards=tmp_path / "cards")
    assert done.returncode == 0, done.stderr
    [figure] = [json.loads(line) for line in done.stdout.splitlines()]
    assert (figure["name"], figure["value"]) == ("memory in use - live storages", 0)
