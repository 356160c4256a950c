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
