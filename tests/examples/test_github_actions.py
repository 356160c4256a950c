"""Test the workflow in docs/examples: its expressions, and its commands, run in a repository."""

import os
import re
import sys

import pytest
import yaml
from installed_project import EXAMPLES, environment
from started_process import completed

sys.path.insert(0, str(EXAMPLES.parents[1] / "tools"))
import requirements

WORKFLOW = EXAMPLES / "github-actions.yml"
# Records the arguments of pip.
PYTHON = f"""
if sys.argv[1:3] == ["-m", "pip"]:
    with open(os.environ["PIP_ARGUMENTS"], "a") as arguments:
        print(*sys.argv[3:], file=arguments)
else:
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
"""
TESTS = """
import pytest, torch

def test_add(hpu):
    assert (torch.ones(3, device=hpu) + 1).tolist() == [2, 2, 2]
"""


@pytest.fixture(scope="module")
def workflow():
    return yaml.safe_load(WORKFLOW.read_text())


@pytest.fixture(scope="module")
def job(workflow):
    [job] = workflow["jobs"].values()
    return job


def test_workflow_expressions_refer_to_existing_outputs(workflow, job):
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
def test_commands_of_the_workflow_run_in_a_repository(job, tmp_path):
    variables = environment(tmp_path, {"python": PYTHON})
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "test_it.py").write_text(TESTS)
    (repository / "pyproject.toml").write_text("")
    output = tmp_path / "output"
    variables |= {
        "GITHUB_OUTPUT": str(output),
        "PIP_ARGUMENTS": str(tmp_path / "pip"),
        "HPU_MAGIC_SIMULATOR": job["env"]["HPU_MAGIC_SIMULATOR"],
        "TORCH_INDEX": "somewhere",
    }
    printed = []
    for step in (step for step in job["steps"] if "run" in step):
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = completed(*command, cwd=repository, env=variables)
        assert done.returncode == 0, done.stdout + done.stderr
        printed.append(done.stdout)
    assert (tmp_path / "pip").read_text().splitlines() == [
        "install torch --index-url somewhere",
        "install hpu_magic[testing]",
        "install -e .",
    ]
    assert re.fullmatch(r"versions=[\w.+]+-[\w.]+\n", output.read_text())
    assert "/engine/" in printed[-2]
    assert "hpu: simulated GAUDI2, eager\n" in printed[-1]
    assert "1 passed" in printed[-1]


def test_installed_extra_contains_pytest():
    described = requirements.tomllib.loads((EXAMPLES.parents[1] / "pyproject.toml").read_text())
    assert "pytest>=8" in requirements.of_extras(described, "testing")
