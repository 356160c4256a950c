"""What `make` makes before what, told without making anything."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


def make(*arguments, **variables):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    # As from a shell, also where make runs the tests and says so to the makes below it.
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    environment |= variables
    done = subprocess.run(
        ["make", *arguments],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_notebook_waits_for_nothing_that_only_development_needs(tmp_path):
    rules = make("-pn", "engine", f"VENV={tmp_path / 'venv'}")
    assert re.findall(r"^lab:(.*)$", rules, re.MULTILINE) == [" engine"]
    done = make("-n", "engine", f"VENV={tmp_path / 'venv'}")
    assert "hpu_magic.command_line build" in done
    for unneeded in ("requirements-dev", "labextension", "node", "browser"):
        assert unneeded not in done


def test_lab_takes_options_of_jupyterlab_and_names_what_other_notebooks_need(tmp_path):
    # As `make` has read it: the recipe of `lab` runs with -n, too, since it calls make.
    rules = make("-pn", "engine", f"VENV={tmp_path / 'venv'}")
    [recipe] = re.findall(r"^lab: engine\n((?:[#\t].*\n)+)", rules, re.MULTILINE)
    assert "$(BIN)/python tools/requirements.py --missing notebooks\n" in recipe
    start = " ".join(recipe.partition("exec ")[2].replace("\\\n", " ").split())
    assert start.startswith("$(BIN)/jupyter lab --ip=127.0.0.1 ")
    assert start.endswith(" --LabApp.default_url=/lab/tree/notebooks/quickstart.ipynb $(LAB)")
    assert 'make lab LAB="--port 9999 --no-browser"' in (PROJECT / "Makefile").read_text()


def test_notebooks_installs_what_they_import(tmp_path):
    venv = tmp_path / "venv"
    *_, listed, installed = make("-n", "notebooks", f"VENV={venv}").splitlines()
    assert listed == f"{venv}/bin/python tools/requirements.py notebooks > {venv}/notebooks.txt"
    assert installed.endswith(
        f"install -c constraints.txt -r {venv}/requirements.txt -r {venv}/notebooks.txt"
    )


@pytest.mark.parametrize("target", ["lint", "labextension", "versions"])
def test_checks_sidebar_and_versions_prepare_what_they_need(tmp_path, target):
    done = make("-n", target, f"VENV={tmp_path / 'venv'}")
    assert f"{tmp_path / 'venv'}/running" in done
    assert ("requirements-dev" in done) == (target == "lint")


def test_the_sanitizers_suites_prepare_the_tests_tools_and_the_compiler(tmp_path):
    done = make("-n", "sanitize", f"VENV={tmp_path / 'venv'}", "WORKERS=3")
    assert f"{tmp_path / 'venv'}/running" in done
    assert "-r requirements-dev.txt" in done
    *_, system, run = done.splitlines()
    assert system == "sh tools/system_packages.sh compiler headers"
    assert run == f"WORKERS=3 {tmp_path / 'venv'}/bin/python tools/sanitize.py"


def test_the_site_is_built_with_what_its_notebooks_import_and_the_compiled_device(tmp_path):
    done = make("-n", "docs", f"VENV={tmp_path / 'venv'}")
    for needed in ("-r requirements-dev.txt", "-r requirements-docs.txt", "command_line build"):
        assert needed in done
    assert done.splitlines()[-1] == f"{tmp_path / 'venv'}/bin/python tools/build_site.py"


def test_processes_find_the_bytecode_of_those_before_them_whatever_the_environment_says():
    rule = "show: ; @echo $${PYTHONDONTWRITEBYTECODE-unset}"
    assert make("-s", f"--eval={rule}", "show", PYTHONDONTWRITEBYTECODE="1") == "unset\n"
