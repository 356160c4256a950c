"""Test cached environments of libraries that the project does not require."""

import dataclasses
import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
sys.path.insert(0, str(PROJECT / "tools"))
import environments  # noqa: E402  (needs the path above)
from environments import ENVIRONMENTS, Environment  # noqa: E402

BY_NAME = pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda each: each.name)


def wheel(folder, name, version="0.1"):
    """Write a package with one module."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "NAME = 'of the environment'",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as packed:
        for file, text in files.items():
            packed.writestr(file, text)
        packed.writestr(f"{about}/RECORD", "".join(f"{file},,\n" for file in files))
    return path


@pytest.fixture
def small(tmp_path, monkeypatch):
    """An environment with one package, which the project requires in another version."""
    (tmp_path / "tools" / "environments").mkdir(parents=True)
    monkeypatch.setattr(environments, "PROJECT", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    replacement = tmp_path / "replacement"
    replacement.mkdir()
    (replacement / "torchvision.py").write_text("NAME = 'a replacement'")
    package = str(wheel(tmp_path, "tqdm"))
    made = Environment("small", (package,), own_releases=True, path=(replacement,))
    monkeypatch.setattr(environments, "ENVIRONMENTS", (made,))
    return made


def test_environment_with_the_same_packages_is_reused(small, tmp_path, capfd):
    small.releases.write_text("tqdm==0.1\n")
    folder = tmp_path / "kept" / "small"
    folder.mkdir(parents=True)
    (folder / "made_of.txt").write_text(small.made_of())
    assert environments.main(["small", "--keep", str(tmp_path / "kept")]) == 0
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == (f"{folder / 'bin' / 'python'}\n", "")
    assert [each.name for each in folder.iterdir()] == ["made_of.txt"]


SLOW = pytest.mark.skipif(
    "HPU_MAGIC_TEST_ALL_MODELS" not in os.environ, reason="make huggingface runs it"
)


@SLOW
def test_package_of_the_project_is_installed_with_the_same_release(small, tmp_path, monkeypatch):
    release = importlib.metadata.version("tqdm")
    package = str(wheel(tmp_path, "tqdm", release))
    same = dataclasses.replace(small, packages=(package,))
    monkeypatch.setattr(environments, "ENVIRONMENTS", (same,))
    small.releases.write_text(f"tqdm=={release}\n")
    assert environments.main(["small", "--keep", str(tmp_path / "kept")]) == 0
    assert [*(tmp_path / "kept" / "small").glob("lib/python3*/site-packages/tqdm.py")]


@SLOW
def test_environment_is_created_once_and_again_after_a_failure(small, tmp_path, capfd):
    arguments = ["small", "--keep", str(tmp_path / "kept")]
    small.releases.write_text("tqdm==0.2\n")  # there is no such release
    with pytest.raises(subprocess.CalledProcessError):
        environments.main(arguments)
    small.releases.write_text("tqdm==0.1\n")
    capfd.readouterr()
    assert environments.main(arguments) == 0
    made = capfd.readouterr()
    assert "Setting up" in made.err
    assert environments.main(arguments) == 0
    again = capfd.readouterr()
    assert (again.out, again.err) == (made.out, "")
    program = (
        "import json, tqdm, torchvision, torch, sys;"
        "print(json.dumps([tqdm.NAME, torchvision.NAME, torch.__version__]))"
    )
    python = made.out.strip()
    found = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    import torch

    assert found.stdout.strip() == f'["of the environment", "a replacement", "{torch.__version__}"]'


def test_other_releases_create_another_environment(small):
    small.releases.write_text("tqdm==0.1\n")
    made_of = small.made_of()
    assert made_of == small.made_of()
    assert dataclasses.replace(small, path=()).made_of() != made_of
    small.releases.write_text("tqdm==0.2\n")
    assert small.made_of() != made_of


@BY_NAME
def test_packages_have_exact_releases(environment):
    lines = environment.releases.read_text().splitlines()[1:]
    releases = [
        re.fullmatch(r"([\w-]+)==[\w.]+(; python_version >= \"3\.11\")?", line) for line in lines
    ]
    assert None not in releases
    names = [release[1].replace("_", "-") for release in releases]
    assert names == sorted(set(names), key=str.lower)
    assert set(environment.packages) <= set(names)


@pytest.mark.parametrize(
    "environment",
    [each for each in ENVIRONMENTS if not each.own_releases],
    ids=lambda each: each.name,
)
def test_environments_do_not_contradict_the_projects_releases(environment):
    project = (PROJECT / "constraints.txt").read_text().splitlines()
    shared = {line.partition("==")[0] for line in project}
    own = {line.partition("==")[0] for line in environment.releases.read_text().splitlines()}
    assert own & shared == set()
    files = [str(environment.releases), str(PROJECT / "constraints.txt")]
    assert environment.constraints() == ["-c", files[0], "-c", files[1]]


def test_environment_of_vllm_depends_on_the_source_of_its_plugin(monkeypatch, tmp_path, capfd):
    [vllm] = [each for each in ENVIRONMENTS if each.plugin]
    folder = tmp_path / vllm.name
    folder.mkdir()
    made = dataclasses.replace(vllm, plugin="plugin.tar.gz").made_of()
    (folder / "made_of.txt").write_text(made)
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    arguments = [vllm.name, "--keep", str(tmp_path)]
    assert environments.main([*arguments, "--plugin", "plugin.tar.gz"]) == 0
    assert capfd.readouterr().out == f"{folder / 'bin' / 'python'}\n"
    assert vllm.made_of() != made
    assert str(PROJECT) in made
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    with pytest.raises(SystemExit):
        environments.main(arguments)
    assert "The environment requires Python 3.11 or 3.12, got" in capfd.readouterr().err


def test_unknown_name_is_rejected_with_the_known_names(capsys):
    with pytest.raises(SystemExit):
        environments.main(["optimum"])
    error = capsys.readouterr().err
    assert "choose from" in error
    assert all(each.name in error for each in ENVIRONMENTS)
