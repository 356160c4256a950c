"""Test prerequisites and commands of make targets, without running them."""

import os
import re
import shutil
from pathlib import Path

import pytest
from started_process import completed

PROJECT = Path(__file__).parents[2]
PARTS_OF_OPERATORS = ("conv", "matmul", "pool")  # in the names of parametrized tests


def make(*arguments, **variables):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    # Exclude the variables of a `make` command that runs these tests.
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    environment |= variables
    done = completed("make", *arguments, cwd=PROJECT, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lab_requires_no_development_tools(tmp_path):
    rules = make("-pn", "engine", f"VENV={tmp_path / 'venv'}")
    assert re.findall(r"^lab:(.*)$", rules, re.MULTILINE) == [" engine"]
    done = make("-n", "engine", f"VENV={tmp_path / 'venv'}")
    assert "hpu_magic.command_line build" in done
    for unneeded in ("requirements-dev", "labextension", "node", "browser"):
        assert unneeded not in done


def test_lab_accepts_jupyterlab_options_and_lists_missing_packages(tmp_path):
    # From make's database: with -n, the recipe of `lab` would run, because it calls make.
    rules = make("-pn", "engine", f"VENV={tmp_path / 'venv'}")
    [recipe] = re.findall(r"^lab: engine\n((?:[#\t].*\n)+)", rules, re.MULTILINE)
    assert "$(BIN)/python tools/requirements.py --missing notebooks\n" in recipe
    start = " ".join(recipe.partition("exec ")[2].replace("\\\n", " ").split())
    assert start.startswith("$(BIN)/jupyter lab --ip=127.0.0.1 ")
    assert start.endswith(" --LabApp.default_url=/lab/tree/notebooks/quickstart.ipynb $(LAB)")
    assert 'make lab LAB="--port 9999 --no-browser"' in (PROJECT / "Makefile").read_text()


def test_notebooks_target_installs_imported_packages(tmp_path):
    venv = tmp_path / "venv"
    *_, listed, installed = make("-n", "notebooks", f"VENV={venv}").splitlines()
    assert listed == f"{venv}/bin/python tools/requirements.py notebooks > {venv}/notebooks.txt"
    assert installed.endswith(
        f"install --no-compile -c constraints.txt -r {venv}/requirements.txt "
        f"-r {venv}/notebooks.txt"
    )


@pytest.mark.parametrize("target", ["lint", "labextension", "versions"])
def test_targets_install_their_requirements(tmp_path, target):
    done = make("-n", target, f"VENV={tmp_path / 'venv'}")
    assert f"{tmp_path / 'venv'}/running" in done
    assert ("requirements-dev" in done) == (target == "lint")


def test_sanitize_installs_compiler_and_test_tools(tmp_path):
    done = make("-n", "sanitize", f"VENV={tmp_path / 'venv'}", "WORKERS=3")
    assert f"{tmp_path / 'venv'}/running" in done
    assert "-r requirements-dev.txt" in done
    *_, system, run = done.splitlines()
    assert system == "sh tools/system_packages.sh compiler headers"
    assert run == f"WORKERS=3 {tmp_path / 'venv'}/bin/python tools/sanitize.py"


def test_docs_target_installs_imports_of_notebooks_and_the_engine(tmp_path):
    done = make("-n", "docs", f"VENV={tmp_path / 'venv'}")
    for needed in ("-r requirements-dev.txt", "-r requirements-docs.txt", "command_line build"):
        assert needed in done
    assert done.splitlines()[-1] == f"{tmp_path / 'venv'}/bin/python tools/build_site.py"


def test_bytecode_is_written_despite_the_environment():
    rule = "show: ; @echo $${PYTHONDONTWRITEBYTECODE-unset}"
    assert make("-s", f"--eval={rule}", "show", PYTHONDONTWRITEBYTECODE="1") == "unset\n"


def test_expressions_that_select_tests_match_names_of_tests():
    for target in ("test-avx2", "test-sse41"):
        *_, command = make("-n", target).partition("pytest ")
        paths, expression = re.fullmatch(r'(.*) -k "(.*)"\n', command).groups()
        files = [PROJECT / path for path in paths.split()]
        names = [file.stem for file in files]
        for file in files:
            names += re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
        for word in {*re.findall(r"\w+", expression)} - {"and", "or", "not", *PARTS_OF_OPERATORS}:
            assert any(word in name for name in names), (target, word)
