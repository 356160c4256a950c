"""The workflow of docs/examples: what is written in it, and its commands in a repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml
from installed_project import EXAMPLES, environment

sys.path.insert(0, str(EXAMPLES.parents[1] / "tools"))
import requirements

WORKFLOW = EXAMPLES / "github-actions.yml"
# A program that writes down what pip is asked for.
PYTHON = f"""
if sys.argv[1:3] == ["-m", "pip"]:
    with open(os.environ["ASKED_OF_PIP"], "a") as asked:
        print(*sys.argv[3:], file=asked)
else:
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
"""
TESTS = """
import pytest, torch

def test_add(hpu):
    assert (torch.ones(3, device=hpu) + 1).tolist() == [2, 2, 2]
"""


@pytest.fixture(scope="module")
def workflow() -> dict[Any, Any]:
    return yaml.safe_load(WORKFLOW.read_text())


@pytest.fixture(scope="module")
def job(workflow: dict[Any, Any]) -> dict[str, Any]:
    [job] = workflow["jobs"].values()
    return job


def test_the_workflow_uses_what_its_steps_put_out(workflow, job):
    # YAML reads `on` as true.
    assert workflow[True] == ["push", "pull_request"]
    ids = {step["id"]: step["run"] for step in job["steps"] if "id" in step}
    for expression in re.findall(r"\$\{\{ (.*?) \}\}", WORKFLOW.read_text()):
        found = re.fullmatch(r"steps\.(\w+)\.outputs\.(\w+)", expression)
        if found:
            assert f"{found[2]}=" in ids[found[1]]
        else:
            assert expression in ("vars.TORCH_INDEX", "runner.os")


@pytest.mark.skipif(
    not os.environ.get("HPU_MAGIC_TEST_ALL_EXAMPLES"), reason="make examples runs it"
)
def test_its_commands_run_in_a_repository(job, tmp_path):
    variables = environment(tmp_path, {"python": PYTHON})
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "test_it.py").write_text(TESTS)
    (repository / "pyproject.toml").write_text("")
    output = tmp_path / "output"
    variables |= {
        "GITHUB_OUTPUT": str(output),
        "ASKED_OF_PIP": str(tmp_path / "pip"),
        "HPU_MAGIC_SIMULATOR": job["env"]["HPU_MAGIC_SIMULATOR"],
        "TORCH_INDEX": "somewhere",
    }
    said = []
    for step in (step for step in job["steps"] if "run" in step):
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(
            command, cwd=repository, env=variables, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(done.stdout)
    assert (tmp_path / "pip").read_text().splitlines() == [
        "install torch --index-url somewhere",
        "install hpu_magic[testing]",
        "install -e .",
    ]
    assert re.fullmatch(r"versions=[\w.+]+-[\w.]+\n", output.read_text())
    assert "/engine/" in said[-2]
    assert "hpu: simulated GAUDI2, eager\n" in said[-1]
    assert "1 passed" in said[-1]


def test_what_it_installs_has_pytest():
    described = requirements.tomllib.loads((EXAMPLES.parents[1] / "pyproject.toml").read_text())
    assert "pytest>=8" in requirements.of_extras(described, "testing")
