"""What is remembered for notebooks has a bound; the least recently used goes first."""

from __future__ import annotations

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


def test_the_least_recently_used_notebooks_are_forgotten(folder, monkeypatch):
    for number in range(5):
        monkeypatch.setenv("JPY_SESSION_NAME", f"/home/ada/{number}.ipynb")
        restart.remember({NAME: str(number)})
        for path in folder.glob("*.json"):  # each a while ago
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


def test_what_a_broken_off_write_left_counts_too(folder, monkeypatch):
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
{kernel}
shell.run_line_magic("load_ext", "hpu_magic")
import os
print("has", os.environ.get("{name}"))
print(shell.run_line_magic("{command}", "{line}"))
"""
SETTINGS = [
    ("PT_HPU_LAZY_MODE", "1", "0", "hpu_mode", ""),
    (NAME, "1", "0", "hpu_flags", NAME),
    ("PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "/mine.txt", "/theirs.txt", "hpu_mode", ""),
]


@pytest.mark.parametrize(("name", "kept", "inherited", "command", "line"), SETTINGS)
def test_in_a_terminal_the_environment_wins(
    folder, script, monkeypatch, name, kept, inherited, command, line
):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(restart, "_kernel_id", None)
    restart.remember({name: kept})
    code = STARTED.format(kernel="", name=name, command=command, line=line)
    out = script(code, **{name: inherited})
    assert (
        f"{name}={inherited} is set in the environment and overrides {kept}, the setting of this "
        "folder."
    ) in out.splitlines()
    assert f"has {inherited}" in out.splitlines()
    assert "after a restart" not in out
    if name == "PT_HPU_LAZY_MODE":
        assert "requested  eager" in out
    monkeypatch.delenv(name, raising=False)
    again = script(code)  # without the variable, the stored value applies
    assert f"has {kept}" in again.splitlines()
    assert "in the environment" not in again


@pytest.mark.parametrize(("name", "kept", "inherited", "command", "line"), SETTINGS)
def test_in_a_notebook_the_users_last_setting_wins(
    folder, script, monkeypatch, name, kept, inherited, command, line
):
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/a.ipynb")
    restart.remember({name: kept})
    code = STARTED.format(kernel="", name=name, command=command, line=line)
    out = script(code, **{name: inherited}).splitlines()
    assert f"{name}={kept} is the setting of this notebook; the environment had {inherited}." in out
    assert f"has {kept}" in out
    same = script(code, **{name: kept})
    assert "the environment had" not in same


def test_a_mode_typed_in_a_terminal_is_requested_whatever_it_inherits(folder, script, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(restart, "_kernel_id", None)
    restart.remember({"PT_HPU_LAZY_MODE": "1"})
    code = STARTED.format(kernel="", name="PT_HPU_LAZY_MODE", command="hpu_mode", line="lazy")
    out = script(code, PT_HPU_LAZY_MODE="0")
    assert "requested  lazy" in out
