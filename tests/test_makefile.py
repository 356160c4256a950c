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
