"""Processes that hpu_magic starts do not import modules from the working directory."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from started_process import completed, wait_for

from hpu_magic import child_python
from hpu_magic.parallel.cluster import Cluster
from hpu_magic.server.reader_process import ReaderProcess
from hpu_magic.simulator.cards.hl_smi import BIN
from hpu_magic.testing.process import Companion

PLANTED = (
    *("torch", "ninja", "hpu_magic", "sitecustomize", "usercustomize", "json", "runpy", "argparse"),
    *("psutil", "setuptools", "ipyparallel", "zmq", "random", "tempfile", "typing_extensions"),
)
# Records the process, then behaves like the real module.
MODULE = """\
import os, sys
with open({record!r}, "a") as record:
    record.write(__name__ + " in " + " ".join(sys.orig_argv).replace(chr(10), " ") + chr(10))
sys.path[:] = [each for each in sys.path if os.path.realpath(each) != {folder!r}]
sys.modules.pop(__name__, None)
try:
    __import__(__name__)
except ModuleNotFoundError:
    pass
"""
FAKE_COMPILER = """#!/bin/sh
case "$*" in *--version*) echo fake 1.0;; *) echo "x.cpp:1: error: no such thing" >&2; exit 1;; esac
"""
COMMAND = "import sys; from hpu_magic.command_line import main; sys.exit(main())"


@pytest.fixture
def record(tmp_path, monkeypatch):
    """A working directory with modules that record their importers."""
    folder, record = tmp_path / "downloads", tmp_path / "record"
    folder.mkdir()
    record.touch()
    for name in PLANTED:
        place = folder / name / "__init__.py" if name == "hpu_magic" else folder / f"{name}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(MODULE.format(record=str(record), folder=str(folder.resolve())))
    monkeypatch.chdir(folder)
    return record


@pytest.fixture
def simulated(tmp_path, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path / "cards"))
    monkeypatch.setenv("HPU_MAGIC_SIMULATOR", "1")


def test_plain_python_imports_the_planted_modules(record):
    subprocess.run([sys.executable, "-m", "hpu_magic", "--version"], check=True)
    subprocess.run([sys.executable, "-c", "import json"], check=True)
    assert {line.split()[0] for line in record.read_text().splitlines()} >= {"hpu_magic", "json"}


def test_build_for_all_users_runs_no_code_of_the_working_directory(record, tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text(FAKE_COMPILER)
    compiler.chmod(0o755)
    own = {"HPU_MAGIC_CACHE": tmp_path / "cache", "TMPDIR": tmp_path, "CXX": compiler}
    environment = os.environ | {name: str(value) for name, value in own.items()}
    command = sys.executable, "-I", "-c", COMMAND, "build", "--dir", tmp_path / "engines"
    build = completed(*command, env=environment)
    assert (build.returncode, record.read_text()) == (1, "")
    assert "no such thing" in build.stderr  # the compiler ran


def test_reader_of_the_cards_runs_no_code_of_the_working_directory(record, simulated):
    async def read():
        reader = ReaderProcess(timeout=30.0)
        sample = await reader.read()
        await reader.stop()
        return sample

    assert len(asyncio.run(read())["cards"]) > 0
    assert record.read_text() == ""


def test_folder_that_all_users_can_write_is_not_searched(record, simulated, monkeypatch):
    Path.cwd().chmod(0o777)
    own = record.parent / "own"
    own.mkdir()
    (own / "plum.py").write_text("print('plum')")
    monkeypatch.setenv("PYTHONPATH", f":.:{Path.cwd()}:{own}:/no/such/folder")
    settings = {"env": child_python.environment()}
    done = completed(*child_python.command("plum"), check=True, **settings)
    assert (done.stdout, record.read_text()) == ("plum\n", "")
    reader = completed(*child_python.command("hpu_magic.server.reader"), input="", **settings)
    assert (reader.stdout, record.read_text()) == ("ready\n", "")


def test_companion_process_has_the_specified_path(record, tmp_path):
    (tmp_path / "answers.py").write_text(
        "import json, sys\ndef answer(pipe): pipe.send((json.dumps([1]), sys.path))\n"
    )
    path = [str(tmp_path), *(each for each in sys.path if each)]
    companion = Companion("answers:answer", os.environ, path, Path.cwd())
    assert companion.connection.recv() == ("[1]", path)
    companion.finish(30.0)
    assert record.read_text() == ""


def test_hl_smi_of_the_simulator_runs_no_code_of_the_working_directory(record, simulated):
    environment = os.environ | {"HPU_MAGIC_PYTHON": sys.executable}
    assert completed(BIN / "hl-smi", "-L", env=environment, check=True).stdout
    assert record.read_text() == ""


def test_workers_run_the_users_code_but_their_controller_does_not(record):
    cluster = Cluster(1, None)
    try:
        path = cluster.client[0].apply_sync(os.getcwd)
    finally:
        cluster.stop()
    assert path == os.getcwd()
    assert "controller" not in record.read_text()
    assert "ipyparallel.engine" in record.read_text()


def test_guard_of_workers_runs_no_code_of_the_working_directory(record):
    command = [sys.executable, "-I", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker:
        code = "from hpu_magic.parallel.guard import Guard; import sys; Guard([int(sys.argv[1])])"
        # The parent of the guard has ended, so the guard ends the worker.
        subprocess.run([sys.executable, "-I", "-c", code, str(worker.pid)], check=True)
        wait_for(lambda: worker.poll() is not None)
    assert record.read_text() == ""
