"""Compiling the engine: once, visibly, and with a clear sentence where it cannot be done."""

import os
import subprocess
import sys

import pytest

from hpu_magic.simulator import engine

FAKE_COMPILER = """#!/bin/sh
case "$*" in *--version*) echo fake 1.0;; *) echo "x.cpp:1: error: no such thing" >&2; exit 1;; esac
"""


def test_the_cached_engine_is_reused(script):
    out = script(
        """
        from hpu_magic.simulator import engine
        engine._build = None  # a build would need it
        print(engine.compiled() == engine.compiled())
        """
    )
    assert out.strip() == "True"


def test_a_missing_compiler_is_named_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("HPU_MAGIC_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        engine.BuildError, match=r"no C\+\+ compiler was found: install one .*g\+\+"
    ):
        engine.compiled()


def test_a_failing_compiler_is_reported_with_its_first_error(monkeypatch, tmp_path, capfd):
    compiler = tmp_path / "c++"
    compiler.write_text(FAKE_COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("HPU_MAGIC_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(engine.BuildError, match=r"no such thing .*build\.log"):
        engine.compiled()
    assert "compiling the simulated device" in capfd.readouterr().err


def test_concurrent_first_uses_build_once(tmp_path):
    """Two processes race for an empty cache; the build itself is counted, not timed."""
    code = """
import sys
from pathlib import Path
from hpu_magic.simulator import engine

def build(library):
    with open(sys.argv[1], "a") as builds:
        builds.write("built\\n")
    import time
    time.sleep(1)
    library.write_bytes(b"")

engine._build = build
print(engine.compiled().exists())
"""
    builds = tmp_path / "builds"
    environment = {**os.environ, "HPU_MAGIC_CACHE": str(tmp_path / "cache")}
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(builds)], env=environment, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    assert [racer.communicate(timeout=120)[0] for racer in racers] == [b"True\n"] * 3
    assert builds.read_text() == "built\n"
