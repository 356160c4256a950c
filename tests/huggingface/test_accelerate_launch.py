"""Test accelerate's commands and launchers, on two cards."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("accelerate")

import accelerate
from features import ACCELERATE, proves
from started_process import completed
from two_cards import fit, reset_state

PROGRAM = Path(__file__).with_name("two_cards.py")
MODE = "lazy" if "HPU_MAGIC_TEST_LAZY" in os.environ else "eager"
LONG = pytest.mark.skipif(
    "HPU_MAGIC_TEST_ALL_MODELS" not in os.environ, reason="make huggingface runs it"
)


def run(*command, fails=False, **environment):
    """Run a command on simulated cards and return its output."""
    with tempfile.TemporaryDirectory() as folder:  # launchers leave a folder behind
        environment = {"HPU_MAGIC_SIMULATOR": "1", "TMPDIR": folder, **environment}
        done = completed(sys.executable, *command, env=os.environ | environment, timeout=250)
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def command(name, *arguments, **options):
    return run("-m", "accelerate.commands.accelerate_cli", name, *arguments, **options)


def assert_equals_the_cpu(found, kind):
    reset_state()
    expected = fit(cpu=True)
    reset_state()
    assert (found["device"], found["kind"], found["ranks"]) == ("hpu:0", kind, [0, 1])
    assert found["mode"] == MODE
    assert found["weights"].keys() == expected["weights"].keys()
    for name, weight in expected["weights"].items():
        for ours, theirs in zip(found["weights"][name], weight, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-6), name


@proves(ACCELERATE, "`accelerate launch` on several cards")
def test_program_is_launched_on_two_cards(shell, tmp_path):
    result = tmp_path / "result.json"
    command("launch", "--num_processes", 2, PROGRAM, RESULT=str(result))
    assert_equals_the_cpu(json.loads(result.read_text()), "MULTI_HPU")


@LONG
@proves(ACCELERATE, "FSDP plug-in, versions 1 and 2")
@pytest.mark.parametrize("version", [1, 2])
def test_program_is_sharded_over_two_cards(shell, tmp_path, version):
    result = tmp_path / "result.json"
    sharding = ("--use_fsdp", "--fsdp_version", version)
    command("launch", "--num_processes", 2, *sharding, PROGRAM, RESULT=str(result))
    assert_equals_the_cpu(json.loads(result.read_text()), "FSDP")


@LONG
@proves(ACCELERATE, "`notebook_launcher` on several cards")
def test_notebook_launches_on_two_cards(shell, tmp_path):
    result = tmp_path / "result.json"
    start = "from accelerate import notebook_launcher as launch; import two_cards"
    code = f"{start}; launch(two_cards.main, num_processes=2)"
    path = os.pathsep.join([str(PROGRAM.parent), os.environ.get("PYTHONPATH", "")])
    run("-c", code, RESULT=str(result), PYTHONPATH=path)
    assert_equals_the_cpu(json.loads(result.read_text()), "MULTI_HPU")


@LONG
@proves(ACCELERATE, "`accelerate test`")
def test_accelerate_test_succeeds(tmp_path):
    configuration = tmp_path / "two.yaml"
    configuration.write_text(
        "compute_environment: LOCAL_MACHINE\n"
        "distributed_type: MULTI_HPU\n"
        "num_machines: 1\nnum_processes: 2\nmixed_precision: 'no'\nuse_cpu: false\n"
    )
    unchecked = {"PT_HPU_ENABLE_VALID_DATA_RANGE_CHECK": "0"} if MODE == "lazy" else {}
    assert "Test is a success!" in command("test", "--config_file", configuration, **unchecked)


@proves(ACCELERATE, "`accelerate env`")
def test_accelerate_env_does_not_list_hpu():
    output = command("env")
    assert f"`Accelerate` version: {accelerate.__version__}" in output
    assert "- PyTorch accelerator: N/A" in output


@LONG
@proves(ACCELERATE, "`accelerate estimate-memory`")
def test_accelerate_estimate_memory_needs_the_hub():
    output = command("estimate-memory", "some-user/some-model", fails=True)
    assert "Repo for model `some-user/some-model` is gated" in output
