"""Test the simulated distribution of the vendor's plug-in, as version checks and pip find it."""

import sys
from pathlib import Path

import pytest
from packaging.version import Version

TOOLS = Path(__file__).parents[2] / "tools"
VERSION = "1.24.1+simulated"

VERSIONS = """
import importlib.metadata as metadata
def versions():
    listed = [each.version for each in metadata.distributions() if each.name == NAME]
    try:
        return metadata.version(NAME), listed
    except metadata.PackageNotFoundError:
        return None, listed
NAME = "habana-torch-plugin"
"""


@pytest.fixture
def started_with(script, tmp_path):
    """Run code in a Python that reads the start-up file of the installed package."""
    (tmp_path / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(TOOLS)!r})\n")
    project = Path(__file__).parents[2]

    def run(code, **environment):
        return script(code, PYTHONPATH=f"{tmp_path}:{project}", **environment)

    return run


def test_version_checks_find_the_simulated_release(forked_script):
    code = VERSIONS + (
        "import hpu_magic.simulator\nbefore = versions()\nhpu_magic.simulator.activate()\n"
        "hpu_magic.simulator.activate()\n"
        "print(before, versions(), metadata.version('Habana_Torch.Plugin'))\n"
        "print(metadata.packages_distributions()['habana_frameworks'])\n"
        "print(list(metadata.distributions(name=NAME, path=['/nowhere'])))"
    )
    assert forked_script(code).splitlines() == [
        f"(None, []) ('{VERSION}', ['{VERSION}']) {VERSION}",
        "['habana-torch-plugin']",
        "[]",
    ]


def test_simulated_version_compares_as_its_release():
    assert Version(VERSION) >= Version("1.24.1")
    assert (Version(VERSION).major, Version(VERSION).minor) == (1, 24)
    assert Version(VERSION).local == "simulated"


def test_installed_distribution_has_priority(forked_script, tmp_path):
    real = tmp_path / "habana_torch_plugin-1.24.0.dist-info"
    real.mkdir()
    (real / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: habana-torch-plugin\nVersion: 1.24.0\n"
    )
    code = VERSIONS + (
        f"import sys\nsys.path.append({str(tmp_path)!r})\n"
        "import hpu_magic.simulator\nhpu_magic.simulator.activate()\nprint(versions())"
    )
    assert forked_script(code) == "('1.24.0', ['1.24.0'])\n"


PIP = f"""
import subprocess
command = "{sys.executable} -m pip list | grep habana-torch-plugin"
print(subprocess.run(command, shell=True, capture_output=True, text=True).stdout.split())
"""


def test_pip_in_a_child_process_lists_the_simulated_release(started_with):
    activate = "import hpu_magic.simulator\nhpu_magic.simulator.activate()\n"
    assert started_with(activate + PIP) == f"['habana-torch-plugin', '{VERSION}']\n"


def test_pip_lists_the_simulated_release_only_with_the_variable(started_with):
    assert started_with(PIP, HPU_MAGIC_SIMULATOR="1") == f"['habana-torch-plugin', '{VERSION}']\n"
    assert started_with(PIP) == "[]\n"


def test_start_of_python_loads_no_torch(started_with):
    code = VERSIONS + "import sys\nprint(versions()[0], 'torch' in sys.modules)"
    assert started_with(code, HPU_MAGIC_SIMULATOR="1") == f"{VERSION} False\n"
