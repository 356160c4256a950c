"""Test project files other than code: versions, citation, workflow, issue forms and hooks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import versions

import hpu_magic
from hpu_magic.simulator.engine import wheels

ROOT = Path(__file__).parents[1]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
WORKFLOWS = [
    *sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    ROOT / "docs" / "examples" / "github-actions.yml",
]


def text(name):
    return (ROOT / name).read_text()


def read(name):
    return yaml.safe_load(text(name))


def ran(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def version():
    return re.findall(r'^version = "([^"]+)"$', text("pyproject.toml"), re.M)[0]


def test_changelog_and_citation_have_the_version_of_the_package():
    releases = re.findall(r"^## \[([^]]+)\]", text("CHANGELOG.md"), re.M)
    assert releases[0] == version() == read("CITATION.cff")["version"] == hpu_magic.__version__
    assert re.findall(r"hpu_magic_engine==([\d.]+)", text("pyproject.toml")) == [version()]


def test_each_release_of_the_changelog_has_a_date_and_entries():
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits"}
    for release in re.split(r"^## ", text("CHANGELOG.md"), flags=re.M)[1:]:
        heading, _, rest = release.partition("\n")
        assert re.fullmatch(r"\[[\d.]+\] - (unreleased|\d{4}-\d\d-\d\d)", heading)
        found = re.findall(r"^### (.+)$", rest, re.M)
        assert found
        assert set(found) <= kinds


def test_citation_has_the_license_and_title_of_the_package():
    cited = read("CITATION.cff")
    assert f'license = "{cited["license"]}"' in text("pyproject.toml")
    assert cited["title"] in text("pyproject.toml")


def jobs():
    return read(".github/workflows/tests.yml")["jobs"]


def test_workflow_tests_the_combinations_of_versions_py():
    tried = jobs()["versions"]["strategy"]["matrix"]["include"]
    table = [{"combination": each.name, "python": each.python} for each in versions.COMBINATIONS]
    assert tried == table


def test_workflow_has_the_python_versions_of_the_wheels():
    [chosen] = [
        step["with"]["python-version"].split()
        for step in jobs()["packages"]["steps"]
        if step.get("uses", "").startswith("actions/setup-python@")
    ]
    assert sorted(chosen) == sorted({row.python for row in wheels.table()})


def test_workflow_installs_the_torch_of_the_makefile():
    chosen = re.findall(r"^TORCH \?= (\S+)$", text("Makefile"), re.M)
    used = re.findall(r"torch==[\d.]+", read(".github/workflows/tests.yml")["env"]["TORCH"])
    assert used == chosen * 2


def test_workflow_uses_existing_targets_with_read_permission():
    assert read(".github/workflows/tests.yml")["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([\w-]+):", text("Makefile"), re.M))
    steps = [step for job in jobs().values() for step in job["steps"]]
    made = [word for step in steps for word in re.findall(r"^make (\S+)", step.get("run", ""))]
    assert made == ["test", "versions", "dist"]
    assert set(made) <= targets
    assert all(step["uses"].startswith("actions/") for step in steps if "uses" in step)


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_files_match_their_schemas(schema, files):
    done = ran("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n")


def test_workflows_are_safe():
    done = ran("zizmor", "--offline", "-q", "-c", ROOT / ".github" / "zizmor.yml", *WORKFLOWS)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_checks_report_an_unsafe_workflow(tmp_path):
    wrong, unsafe = tmp_path / "wrong.yml", tmp_path / "unsafe.yml"
    written = WORKFLOWS[0].read_text()
    wrong.write_text(written.replace("runs-on:", "run-on:"))
    unsafe.write_text(written.replace("\n  contents: read", " write-all"))
    assert ran("check-jsonschema", "--builtin-schema", "vendor.github-workflows", wrong).returncode
    assert "excessive-permissions" in ran("zizmor", "--offline", "-q", unsafe).stdout


def form(path):
    return yaml.safe_load(path.read_text())


def fields(path):
    return [field for field in form(path)["body"] if field["type"] != "markdown"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_form_has_distinct_fields(path):
    ids = [field["id"] for field in fields(path)]
    labels = [field["attributes"]["label"] for field in fields(path)]
    assert all(re.fullmatch(r"[\w-]+", each) for each in ids)
    assert len(ids) == len(set(ids)) == len(set(labels)) > 0


def test_issue_forms_have_distinct_names_and_request_the_doctor():
    assert [path.stem for path in FORMS] == ["bug", "feature", "question"]
    assert len({form(path)["name"] for path in FORMS}) == len(FORMS)
    [doctor] = [field for field in fields(FORMS[0]) if field["id"] == "doctor"]
    assert "`%hpu_doctor --json`" in doctor["attributes"]["label"]
    assert doctor["validations"] == {"required": True}


def test_commit_hooks_run_the_checks_of_make():
    [local] = read(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    *python, notebooks = [hook["entry"] for hook in local["hooks"]]
    rule = text("Makefile").partition("\nlint-python:")[2].partition("\n\n")[0]
    checks = [line.split(" --")[0] for line in re.findall(r"\$\(BIN\)/(.+)", rule)]
    assert [entry.split(" --")[0] for entry in python] == [f".venv/bin/{each}" for each in checks]
    assert notebooks.startswith(".venv/bin/jupyter nbconvert ")
    assert "\nnbconvert\n" in text("requirements-dev.txt")


def test_contributing_lists_the_tests_of_each_part():
    table = text("CONTRIBUTING.md").partition("| part of `hpu_magic/` |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", table, re.M)
    parts = {part for row, _ in rows for part in re.findall(r"`([\w/]+)/`", row)}
    package = ROOT / "hpu_magic"
    folders = {path.parent.name for path in package.glob("*/__init__.py")} - {"simulator"}
    # Old checkouts may contain folders with cached files only.
    simulator = {path.parent.name for path in package.glob("simulator/*/*")} - {"__pycache__"}
    filled = {
        f"simulator/{name}"
        for name in simulator
        if {each.name for each in (package / "simulator" / name).iterdir()} - {"__pycache__"}
    }
    assert parts - {"labextension", "docs", "notebooks"} == folders | filled
    tests = {each for _, cell in rows for each in re.findall(r"tests/[\w./]+", cell)}
    assert [test for test in sorted(tests) if not (ROOT / test).exists()] == []


def test_test_modules_have_different_names():
    # pytest imports modules of different folders by their names only.
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
