"""Compiling the engine: once, visibly, and with a clear sentence where it cannot be done."""

import os
import shutil
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


def test_a_cached_engine_serves_one_torch_compiler_and_source(monkeypatch, tmp_path):
    import torch

    compiler = tmp_path / "c++"
    compiler.write_text(FAKE_COMPILER)
    compiler.chmod(0o755)
    sources = tmp_path / "native"
    shutil.copytree(engine.SOURCES, sources)
    keys = [engine._key()]
    for change in (
        lambda: monkeypatch.setattr(torch, "__version__", "2.6.0"),
        lambda: monkeypatch.setenv("CXX", str(compiler)),
        lambda: compiler.write_text(FAKE_COMPILER.replace("fake 1.0", "fake 2.0")),
        lambda: monkeypatch.setattr(engine, "_FLAGS", ["-O1"]),
        lambda: (sources / "card.h").write_text("// another\n"),
        lambda: (sources / "card.h").rename(sources / "cards.h"),
    ):
        monkeypatch.setattr(engine, "SOURCES", sources)
        change()
        keys.append(engine._key())
    assert keys[1].startswith("torch-2.6.0-")
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("headers", r"Python's headers are missing \(.*Python\.h\): install them .*python3-dev"),
        ("ninja", r"ninja was not found: pip install ninja\."),
    ],
)
def test_what_else_a_build_needs_is_named(monkeypatch, tmp_path, missing, said):
    monkeypatch.setenv("HPU_MAGIC_CACHE", str(tmp_path))
    if missing == "headers":
        monkeypatch.setattr(engine.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    else:
        compiler = tmp_path / "c++"
        compiler.write_text(FAKE_COMPILER)
        compiler.chmod(0o755)
        monkeypatch.setenv("CXX", str(compiler))
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setitem(sys.modules, "ninja", None)
    with pytest.raises(engine.BuildError, match=said):
        engine.compiled()


@pytest.mark.parametrize(
    ("line", "standard"),
    [
        ("#if !defined(_MSC_VER) && __cplusplus < 201703L", "17"),
        ("    (!defined(_MSVC_LANG) && __cplusplus < 202002L)", "20"),
        ("#pragma once", "17"),
    ],
)
def test_the_engine_is_compiled_in_the_oldest_cpp_that_the_headers_take(
    monkeypatch, tmp_path, line, standard
):
    from torch.utils import cpp_extension

    from hpu_magic.simulator import build

    (tmp_path / "ATen").mkdir()
    (tmp_path / "ATen" / "ATen.h").write_text(f"#pragma once\n{line}\n#error too old\n")
    monkeypatch.setattr(cpp_extension, "include_paths", lambda: [str(tmp_path)])
    asked = {}
    monkeypatch.setattr(cpp_extension, "load", lambda *_, **options: asked.update(options))
    build.main("somewhere", ["-O2"])
    assert asked["extra_cflags"] == ["-O2", f"-std=c++{standard}"]
