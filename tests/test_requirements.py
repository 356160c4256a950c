"""Test conflicts between installed libraries, and their messages."""

import packaging.requirements  # noqa: F401 - imported before a test replaces sys.path
import pytest

from hpu_magic.requirements import Conflict, conflicts

SENTENCE = (
    "optimum-habana 1.21.0 requires transformers>=4.55.0,<4.56.0 (5.23.0 is installed) and "
    'accelerate>=1.7.0,<=1.10.1 (1.15.0 is installed): run %pip install "transformers>=4.55.0,'
    '<4.56.0" "accelerate>=1.7.0,<=1.10.1", then restart the kernel.'
)
DISTRIBUTIONS = {
    "optimum_habana-1.21.0": [
        "transformers <4.56.0,>=4.55.0",
        "accelerate <=1.10.1,>=1.7.0",
        "torch",
        "diffusers <0.35.2,>=0.35.1",  # not installed
        "datasets >= 99; extra == 'tests'",  # this extra is not installed
        "pillow >= 99",  # not a requirement of this library
        "of the past (>=1",
    ],
    "transformers-5.23.0": ["huggingface-hub<3.0,>=1.31.0", 'torch>=2.6; extra == "torch"'],
    "accelerate-1.15.0": ["torch>=2.0.0"],
    "huggingface_hub-2.4.0": [],
    "torch-2.13.0+cpu": [],
}


def install(place, name, requires=()):
    folder = place / f"{name}.dist-info"
    folder.mkdir()
    distribution, _, version = name.partition("-")
    lines = [f"Name: {distribution.replace('_', '-')}", f"Version: {version}"]
    lines += [f"Requires-Dist: {require}" for require in requires]
    (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))


@pytest.fixture
def installed(tmp_path):
    """A folder of distributions, one of which requires another transformers."""
    for name, requires in DISTRIBUTIONS.items():
        install(tmp_path, name, requires)
    package = tmp_path / "optimum" / "habana"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from transformers import of_the_past\n")
    (tmp_path / "transformers.py").write_text("__version__ = '5.23.0'\n")
    return tmp_path


def test_requirements_are_compared_with_installed_versions(installed, monkeypatch):
    monkeypatch.setattr("sys.path", [str(installed)])
    needed = {"transformers>=4.55.0,<4.56.0": "5.23.0", "accelerate>=1.7.0,<=1.10.1": "1.15.0"}
    found = conflicts()
    assert found == [Conflict("optimum-habana 1.21.0", needed)]
    assert str(found[0]) == SENTENCE
    assert conflicts(["transformers", "accelerate", "nobody"]) == []
    (installed / "torch-2.13.0+cpu.dist-info" / "METADATA").write_text("Version: 2.5.1\n")
    assert [str(conflict) for conflict in conflicts(["transformers"])] == [
        "transformers 5.23.0 requires torch>=2.6 (2.5.1 is installed): run %pip install "
        '"torch>=2.6", then restart the kernel.'
    ]


def test_failed_import_and_status_report_conflicts(forked_script, installed):
    install(installed, "diffusers-0.35.1")  # independent of this environment
    out = forked_script(
        f"""
        import sys
        sys.stderr = sys.stdout
        sys.path.insert(0, {str(installed)!r})
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        for source in ("%load_ext hpu_magic", "import optimum.habana", "import of_the_past",
                "print('now')", "%hpu"):
            shell.run_cell(source)
        """
    )
    failed, status = out.split("now\n")
    assert failed.count(SENTENCE) == 1
    assert failed.index("cannot import name 'of_the_past'") < failed.index(SENTENCE)
    assert failed.index(SENTENCE) < failed.index("No module named 'of_the_past'")
    assert f"Warning: {SENTENCE}" in status
