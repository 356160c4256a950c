"""Empty engine caches for each test, and builds without a compiler."""

import contextlib
import tempfile
from pathlib import Path

import pytest

from hpu_magic.simulator import engine


@pytest.fixture
def places(tmp_path, monkeypatch):
    """An empty system cache, an empty user cache and an empty temporary folder."""
    monkeypatch.setenv("HPU_MAGIC_SYSTEM_CACHE", str(tmp_path / "system"))
    monkeypatch.setenv("HPU_MAGIC_CACHE", str(tmp_path / "user"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """The list of builds; each writes only a few bytes."""
    done: list[Path] = []

    @contextlib.contextmanager
    def build(alive=lambda: None):
        alive()
        built = tmp_path / f"built-{len(done)}.so"
        built.write_bytes(b"engine")
        done.append(built)
        yield built

    monkeypatch.setattr(engine, "build", build)
    return done
