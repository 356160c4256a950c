"""Test the worked examples of CONTRIBUTING.md, applied to a copy of the project."""

import os
import shutil
import subprocess
import sys
import sysconfig

import pytest
from worked_examples import PAGE, examples

from hpu_magic.simulator.engine.compile_units import language_standard

PROJECT = PAGE.parent
NATIVE = "hpu_magic/simulator/native/"
IGNORED = shutil.ignore_patterns("__pycache__", "labextension", "browser", "front_ends")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with all examples applied, except for C++ files."""
    copy = tmp_path_factory.mktemp("project")
    for part in ("hpu_magic", "tests", "tools"):
        shutil.copytree(PROJECT / part, copy / part, ignore=IGNORED)
    shutil.copy(PROJECT / "pyproject.toml", copy)
    for steps in examples().values():
        for step in steps:
            if not step.path.startswith(NATIVE):
                step.apply(copy)
    return copy


def _run(project, *command):
    environment = os.environ | {"PYTHONPATH": str(project)}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_example_changes_code_and_adds_a_test():
    shown = examples()
    assert list(shown) == ["An operator", "A magic", "A chart", "A vendor name"]
    for steps in shown.values():
        assert len(steps) > 1
        assert steps[-1].path.startswith("tests/")
    text = PAGE.read_text()
    assert text.count("<!-- not run: test_worked_examples.py -->") == sum(map(len, shown.values()))


def test_tests_of_the_examples_pass(project):
    _, *others = examples().values()
    tests = [steps[-1].path for steps in others]
    output = _run(project, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert "4 passed" in output


def test_examples_pass_ruff(project):
    ruff = shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    files = [step.path for steps in examples().values() for step in steps]
    python = sorted({path for path in files if path.endswith(".py")})
    _run(project, ruff, "check", "--no-cache", *python)
    _run(project, ruff, "format", "--check", "--no-cache", *python)


def test_operator_example_matches_its_declaration():
    native, row, _ = examples()["An operator"]
    declared = row.code.splitlines()[0].rpartition("\t")[2].removeprefix("hpu::")
    assert f'define("{declared}", &' in native.code


def test_operator_example_compiles(tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    from torch.utils.cpp_extension import include_paths

    native = examples()["An operator"][0]
    source = tmp_path / native.path
    source.parent.mkdir(parents=True)
    shutil.copy(PROJECT / native.path, source)
    native.apply(tmp_path)
    headers = [*include_paths(), sysconfig.get_paths()["include"], str(PROJECT / NATIVE)]
    standard = f"-std=c++{language_standard()}"
    options = (standard, "-fsyntax-only", *(f"-I{header}" for header in headers))
    _run(tmp_path, compiler, *options, str(source))
