"""The site as Sphinx builds it, without what notebooks show."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("myst_nb") is None:
        pytest.skip("Sphinx and MyST are not installed: requirements-docs.txt names them")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "tools/build_site.py", "--fast", "--into", str(folder)]
    built = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=240)
    assert (built.returncode, built.stderr) == (0, "")
    return folder / "site"


def test_every_page_is_built(site: Path) -> None:
    written = {path.relative_to(PROJECT / "docs") for path in (PROJECT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    assert written <= built
