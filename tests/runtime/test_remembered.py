"""Test remembered settings of notebooks: their number, and the precedence of the environment."""

import os
from pathlib import Path

import pytest

from hpu_magic.runtime.start import restart

NAME = "PT_HPU_ENABLE_CACHE_METRICS"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(restart, "_interactive", True)
    monkeypatch.setattr(restart, "_NOTEBOOKS_KEPT", 3)
    monkeypatch.setenv(NAME, "0")
    (tmp_path / "hpu_magic" / "operators").mkdir(parents=True)
    return tmp_path / "hpu_magic"


def test_least_recently_used_notebooks_are_forgotten(folder, monkeypatch):
    for number in range(5):
        monkeypatch.setenv("JPY_SESSION_NAME", f"/home/ada/{number}.ipynb")
        restart.remember({NAME: str(number)})
        for path in folder.glob("*.json"):  # age the files
            os.utime(path, (path.stat().st_atime - 100, path.stat().st_mtime - 100))
        if number == 2:
            monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/0.ipynb")
            assert restart.apply() == {NAME: "0"}
    kept = {}
    for number in range(5):
        monkeypatch.setenv("JPY_SESSION_NAME", f"/home/ada/{number}.ipynb")
        kept[number] = restart.recall().get(NAME)
    assert kept == {0: "0", 1: None, 2: None, 3: "3", 4: "4"}
    assert (folder / "operators").is_dir()
    assert len([path for path in folder.iterdir() if path.is_file()]) == 3


def test_temporary_files_of_interrupted_writes_are_removed(folder, monkeypatch):
    for number in range(10):
        (folder / f"tmp{number}").touch()
        os.utime(folder / f"tmp{number}", (0, 0))
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/a.ipynb")
    restart.remember({NAME: "1"})
    assert len([path for path in folder.iterdir() if path.is_file()]) == 3
    assert restart.recall() == {NAME: "1"}


STARTED = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "hpu_magic")
import os
print("has", os.environ.get("{name}"))
print(shell.run_line_magic("{command}", "{line}"))
"""
SETTINGS = pytest.mark.parametrize(
    ("name", "kept", "inherited", "command", "line"),
    [
        ("PT_HPU_LAZY_MODE", "1", "0", "hpu_mode", ""),
        (NAME, "1", "0", "hpu_flags", NAME),
        ("PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "/mine.txt", "/theirs.txt", "hpu_mode", ""),
    ],
)


@pytest.fixture
def terminal(folder, monkeypatch):
    """A session without a notebook."""
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(restart, "_kernel_id", None)


@SETTINGS
def test_environment_overrides_the_setting_in_a_terminal(
    terminal, script, monkeypatch, name, kept, inherited, command, line
):
    restart.remember({name: kept})
    code = STARTED.format(name=name, command=command, line=line)
    out = script(code, **{name: inherited})
    sentence = f"is set in the environment and overrides this folder's setting of {kept}."
    assert f"{name}={inherited} {sentence}" in out.splitlines()
    assert f"has {inherited}" in out.splitlines()
    assert "after a restart" not in out
    if name == "PT_HPU_LAZY_MODE":
        assert "requested  eager" in out
    monkeypatch.delenv(name, raising=False)
    again = script(code)  # without the variable, the stored value applies
    assert f"has {kept}" in again.splitlines()
    assert "in the environment" not in again


@SETTINGS
def test_setting_overrides_the_environment_in_a_notebook(
    folder, script, monkeypatch, name, kept, inherited, command, line
):
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/a.ipynb")
    restart.remember({name: kept})
    code = STARTED.format(name=name, command=command, line=line)
    out = script(code, **{name: inherited}).splitlines()
    sentence = f"is this notebook's setting; the environment's value was {inherited}."
    assert f"{name}={kept} {sentence}" in out
    assert f"has {kept}" in out
    same = script(code, **{name: kept})
    assert "the environment's value was" not in same


def test_mode_typed_in_a_terminal_overrides_the_environment(terminal, script):
    restart.remember({"PT_HPU_LAZY_MODE": "1"})
    code = STARTED.format(name="PT_HPU_LAZY_MODE", command="hpu_mode", line="lazy")
    out = script(code, PT_HPU_LAZY_MODE="0")
    assert "requested  lazy" in out
