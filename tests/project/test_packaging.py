"""Test contents of the wheel."""

import importlib.metadata
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
BUILT = PROJECT / "hpu_magic" / "labextension"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if not (BUILT / "package.json").exists():
        pytest.skip("the JupyterLab extension has not been built")
    return built(tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def files(wheel):
    return wheel.namelist()


def built(folder, target):
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def below(files, folder):
    return [name.split(f"/{folder}/")[1] for name in files if f"/{folder}/" in name]


def test_wheel_contains_the_built_extension_once(files):
    extension = below(files, "data/share/jupyter/labextensions/hpu_magic")
    assert {"package.json", "install.json", "schemas/hpu_magic/plugin.json"} <= set(extension)
    assert [name for name in extension if name.startswith("static/remoteEntry")]
    assert not [name for name in files if name.startswith("hpu_magic/labextension/")]


def test_extension_and_package_have_one_version():
    metadata = json.loads((PROJECT / "labextension" / "package.json").read_text())
    assert metadata["version"] == importlib.metadata.version("hpu_magic")


def test_wheel_enables_the_server_extension(files):
    settings = below(files, "data/etc/jupyter")
    assert settings == ["jupyter_server_config.d/hpu_magic.json"]


def test_wheel_contains_the_start_up_file(files):
    assert [name for name in files if name.endswith(".pth")] == ["hpu_magic_simulator.pth"]


def test_editable_wheel_contains_the_start_up_file(tmp_path):
    names = built(tmp_path, "wheel:editable").namelist()
    assert "hpu_magic_simulator.pth" in names


def test_wheel_contains_no_front_end_sources(files):
    assert not [name for name in files if "node_modules" in name or name.endswith(".ts")]


def test_wheel_contains_the_simulated_hl_smi_as_a_program(wheel):
    [tool] = [each for each in wheel.infolist() if each.filename.endswith("/bin/hl-smi")]
    assert tool.external_attr >> 16 & 0o111 == 0o111
