"""transformers.Trainer on two cards: one process's numbers with their common batch."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

if "HPU_MAGIC_TEST_ALL_MODELS" not in os.environ:
    pytest.skip("`make huggingface` runs Trainer on two cards", allow_module_level=True)
pytest.importorskip("transformers")

from features import TRANSFORMERS, proves
from trainer_on_cards import CASES, ON_CPU, fit

PROGRAM = Path(__file__).with_name("trainer_on_cards.py")
MODE = "lazy" if "HPU_MAGIC_TEST_LAZY" in os.environ else "eager"
STARTERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"],
    "accelerate": ["accelerate.commands.accelerate_cli", "launch", "--num_processes", "2"],
}


@functools.cache
def fitted(starter: str, *cases: str) -> dict[str, Any]:
    """Start the program on two cards, and return what it told of each case."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        done = subprocess.run(
            [sys.executable, "-m", *STARTERS[starter], PROGRAM, result, *cases],
            env={**os.environ, "HPU_MAGIC_SIMULATOR": "1", "TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(result.read_text(encoding="utf-8"))


@functools.cache
def fitted_on_cpu(case: str) -> dict[str, Any]:
    return fit(1, **{**CASES[case], **ON_CPU})


def assert_fitted_as_by_one(found: dict[str, Any], case: str, kind: str = "MULTI_HPU") -> None:
    expected = fitted_on_cpu(case)
    assert (found["device"], found["cards"], found["mode"]) == ("hpu:0", 2, MODE)
    assert (found["backend"], found["kind"]) == ("hccl", kind)
    assert (expected["device"], expected["cards"]) == ("cpu", 1)
    assert len(set(expected["losses"])) == 6
    for told in ("losses", "norms", "evaluation", "predictions"):
        assert found[told] == pytest.approx(expected[told], abs=1e-5), told


@proves(TRANSFORMERS, "`Trainer` on two cards, with `torchrun` and `accelerate launch`")
@pytest.mark.parametrize("starter", STARTERS)
def test_two_cards_train_as_one_process(starter):
    assert_fitted_as_by_one(fitted(starter, "text", "accumulated", "classes")["text"], "text")


@proves(TRANSFORMERS, "`Trainer` on two cards, with `torchrun` and `accelerate launch`")
def test_two_cards_accumulate_gradients():
    found = fitted("torchrun", "text", "accumulated", "classes")
    assert_fitted_as_by_one(found["accumulated"], "accumulated")


@proves(TRANSFORMERS, "`Trainer` on two cards: classifiers")
def test_two_cards_train_a_classifier():
    assert_fitted_as_by_one(
        fitted("torchrun", "text", "accumulated", "classes")["classes"], "classes"
    )


@proves(TRANSFORMERS, "`Trainer` on two cards: `fsdp`")
def test_a_model_is_sharded_over_two_cards():
    assert_fitted_as_by_one(fitted("torchrun", "sharded")["sharded"], "sharded", kind="FSDP")
