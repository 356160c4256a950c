"""Test transformers' `Trainer` on two cards against one process that reads the same batches."""

import functools
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

if "HPU_MAGIC_TEST_ALL_MODELS" not in os.environ:
    pytest.skip("`make huggingface` runs Trainer on two cards", allow_module_level=True)
pytest.importorskip("transformers")

from features import TRANSFORMERS, proves
from started_process import completed
from trainer_on_cards import CASES, ON_CPU, fit

PROGRAM = Path(__file__).with_name("trainer_on_cards.py")
MODE = "lazy" if "HPU_MAGIC_TEST_LAZY" in os.environ else "eager"
STARTERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"],
    "accelerate": ["accelerate.commands.accelerate_cli", "launch", "--num_processes", "2"],
}


@functools.cache
def fitted(starter, *cases):
    """Start the program on two cards, and return the results of each case."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = sys.executable, "-m", *STARTERS[starter], PROGRAM, result, *cases
        environment = os.environ | {"HPU_MAGIC_SIMULATOR": "1", "TMPDIR": folder}
        done = completed(*command, env=environment, timeout=250)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(result.read_text(encoding="utf-8"))


@functools.cache
def fitted_on_cpu(case):
    return fit(1, **{**CASES[case], **ON_CPU})


def assert_equals_one_process(found, case, kind="MULTI_HPU"):
    expected = fitted_on_cpu(case)
    assert (found["device"], found["cards"], found["mode"]) == ("hpu:0", 2, MODE)
    assert (found["backend"], found["kind"]) == ("hccl", kind)
    assert (expected["device"], expected["cards"]) == ("cpu", 1)
    assert len(set(expected["losses"])) == 6
    for name in ("losses", "norms", "evaluation", "predictions"):
        assert found[name] == pytest.approx(expected[name], abs=1e-5), name


@proves(
    TRANSFORMERS,
    "`Trainer` on two cards, with `torchrun` and `accelerate launch`",
    "`Trainer` on two cards: classifiers",
)
@pytest.mark.parametrize("case", ["text", "accumulated", "classes"])
@pytest.mark.parametrize("starter", STARTERS)
def test_two_cards_train_like_one_process(starter, case):
    assert_equals_one_process(fitted(starter, "text", "accumulated", "classes")[case], case)


@proves(TRANSFORMERS, "`Trainer` on two cards: `fsdp`")
def test_model_is_sharded_over_two_cards():
    assert_equals_one_process(fitted("torchrun", "sharded")["sharded"], "sharded", kind="FSDP")
