"""The worked examples of CONTRIBUTING.md are true: carried out in a copy, their tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from worked_examples import PAGE, examples

from hpu_magic.simulator.engine.compile_units import language_standard

PROJECT = PAGE.parent
NATIVE = "hpu_magic/simulator/native/"
LEFT_OUT = shutil.ignore_patterns("__pycache__", "labextension", "browser", "front_ends")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in which all is carried out but what the engine is compiled from."""
    copy = tmp_path_factory.mktemp("project")
    for part in ("hpu_magic", "tests", "tools"):
        shutil.copytree(PROJECT / part, copy / part, ignore=LEFT_OUT)
    shutil.copy(PROJECT / "pyproject.toml", copy)
    for steps in examples().values():
        for step in steps:
            if not step.path.startswith(NATIVE):
                step.carry_out(copy)
    return copy


def _run(project: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(project)}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_example_writes_or_changes_code_and_brings_a_test() -> None:
    shown = examples()
    assert list(shown) == ["An operator", "A magic", "A chart", "A vendor name"]
    for steps in shown.values():
        assert len(steps) > 1
        assert steps[-1].path.startswith("tests/")
    text = PAGE.read_text()
    assert text.count("<!-- not run: test_worked_examples.py -->") == sum(map(len, shown.values()))


def test_the_examples_tests_pass_but_that_of_the_operator(project: Path) -> None:
    _, *others = examples().values()
    tests = [steps[-1].path for steps in others]
    said = _run(project, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert said.splitlines()[-1].startswith("4 passed")


def test_the_examples_are_formatted_and_read_by_the_checks(project: Path) -> None:
    ruff = shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    files = [step.path for steps in examples().values() for step in steps]
    python = sorted({path for path in files if path.endswith(".py")})
    _run(project, ruff, "check", "--no-cache", *python)
    _run(project, ruff, "format", "--check", "--no-cache", *python)


def test_the_operator_is_declared_as_its_row_says() -> None:
    native, row, _ = examples()["An operator"]
    declared = row.code.splitlines()[0].rpartition("\t")[2].removeprefix("hpu::")
    assert f'define("{declared}", &' in native.code


def test_the_operator_is_understood_by_the_compiler(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    from torch.utils.cpp_extension import include_paths

    native = examples()["An operator"][0]
    source = tmp_path / native.path
    source.parent.mkdir(parents=True)
    shutil.copy(PROJECT / native.path, source)
    native.carry_out(tmp_path)
    headers = [*include_paths(), sysconfig.get_paths()["include"], str(PROJECT / NATIVE)]
    standard = f"-std=c++{language_standard()}"
    options = (standard, "-fsyntax-only", *(f"-I{one}" for one in headers))
    _run(tmp_path, compiler, *options, str(source))
