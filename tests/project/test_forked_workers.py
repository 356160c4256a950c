"""Test ``pytest --workers``, which runs tests in forks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CONFTEST = f"""
import sys, tempfile
sys.path.append({str(TESTS)!r})
from forked_workers import ForkedWorkers

def pytest_configure(config):
    workers = ForkedWorkers(2, lambda item: item.path, lambda: tempfile.mkdtemp(dir="."))
    config.pluginmanager.register(workers)
"""
MODULE = """
import os, pytest, signal, time
from pathlib import Path

@pytest.fixture(scope="module")
def process():
    yield os.getpid()
    Path("ended").open("a").write(f"{os.getpid()}\\n")

def test_waits_for_the_other_worker(process, tmp_path):
    Path(str(process)).touch()
    while sum(path.name.isdecimal() for path in Path(".").iterdir()) < 2:
        time.sleep(0.01)

def test_fails(process):
    print("process", process)
    assert process == 0

def test_is_skipped():
    pytest.skip("for a reason")
"""
CRASH = """
def test_ends_its_worker():
    os.kill(os.getpid(), signal.SIGKILL)

def test_runs_after_the_crash():
    pass
"""


@pytest.fixture
def run(tmp_path):
    def run_pytest(**modules):
        (tmp_path / "conftest.py").write_text(CONFTEST)
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-ra",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
        ]
        environment = {name: os.environ[name] for name in os.environ if name[:6] != "PYTEST"}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        ).stdout

    return run_pytest


def test_files_run_in_different_processes_with_their_own_output(run, tmp_path):
    out = run(test_first=MODULE, test_second=MODULE)
    assert "2 failed, 2 passed, 2 skipped" in out
    processes = re.findall(r"^process (\d+)\n(?!process)", out, re.MULTILINE)
    assert len({*processes}) == 2
    assert sorted((tmp_path / "ended").read_text().split()) == sorted(processes)
    assert not [*tmp_path.glob("tmp*")]  # the private folders


def test_ended_worker_fails_one_test_and_is_replaced(run):
    out = run(test_first=MODULE, test_second=MODULE + CRASH)
    assert "3 failed, 3 passed, 2 skipped" in out
    assert "FAILED test_second.py::test_ends_its_worker - The worker ended with status -9" in out
