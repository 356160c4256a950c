"""Compiling the engine: once, visibly, and with a clear sentence where it cannot be done."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from hpu_magic.simulator import engine
from hpu_magic.simulator.engine import cache, compile_units, compiler

FAKE_COMPILER = """#!/bin/sh
case "$*" in *--version*) echo fake 1.0;; *) echo "x.cpp:1: error: no such thing" >&2; exit 1;; esac
"""


def test_the_cached_engine_is_reused(script):
    engine.compiled()
    out = script(
        """
        from hpu_magic.simulator import engine
        engine.build = None  # a build would need it
        print(engine.compiled() == engine.compiled())
        """
    )
    assert out.strip() == "True"


def test_a_missing_compiler_is_named_with_what_to_install(monkeypatch, tmp_path, places):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        engine.BuildError, match=r"no C\+\+ compiler was found: install one .*g\+\+"
    ):
        engine.compiled()


def test_a_failing_compiler_is_reported_with_its_first_error(monkeypatch, tmp_path, places, capfd):
    compiler = tmp_path / "c++"
    compiler.write_text(FAKE_COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(engine.BuildError, match=r"no such thing .*/torch-[^/]*\.log"):
        engine.compiled()
    assert "compiling the simulated device" in capfd.readouterr().err


def test_a_build_removes_what_killed_ones_have_left(monkeypatch, tmp_path, places):
    place = cache.temporary_directory()
    abandoned, running = place / "build-abandoned", place / "build-running"
    for folder in (abandoned, running):
        folder.mkdir()
        (folder / "one.o").touch()
    os.utime(abandoned, (time.time() - 7200,) * 2)
    compiler = tmp_path / "c++"
    compiler.write_text(FAKE_COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(engine.BuildError):
        engine.compiled()
    assert list(place.glob("build-*")) == [running]


SLOW_COMPILER = """#!/bin/sh
case "$*" in *-c*) echo $$ >> {started}; exec sleep 300;; *) echo fake 1.0;; esac
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_build_that_is_ended_takes_its_compilers_along(places, builds, number):
    """A kernel is killed or interrupted while it compiles; the next one starts afresh."""
    started = places / "started"
    compiler = places / "c++"
    compiler.write_text(SLOW_COMPILER.format(started=started))
    compiler.chmod(0o755)
    code = f"import tempfile; tempfile.tempdir = {tempfile.tempdir!r}\n"
    code += "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from hpu_magic.simulator import engine; engine.compiled()"
    builder = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "CXX": str(compiler)},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: started.exists() and started.read_text().endswith("\n"))
        builder.send_signal(number)
        assert builder.wait(30) != 0
        compilers = [int(pid) for pid in started.read_text().split()]
        wait_until(lambda: not any(map(running, compilers)))
    finally:
        builder.kill()
        builder.wait()
    assert engine.compiled().read_bytes() == b"engine"
    assert len(builds) == 1


def wait_until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_every_source_is_compiled_once(tmp_path):
    compile_units._write_units(tmp_path)
    included = [
        line.removeprefix("#include <").removesuffix(">")
        for unit in tmp_path.glob("*.cpp")
        for line in unit.read_text().splitlines()
    ]
    there = [path.relative_to(engine.SOURCES) for path in engine.SOURCES.rglob("*.cpp")]
    assert sorted(included) == sorted(map(str, there))


def test_folders_that_are_little_beside_the_headers_are_compiled_together():
    folders = {
        unit: {path.relative_to(engine.SOURCES).with_suffix("").parts[0] for path in files}
        for unit, files in compile_units.units().items()
    }
    together = folders.pop("small")
    assert {"bindings", "events", "threads"} <= together
    assert folders == {unit: {unit} for unit in folders}
    assert "custom" in folders


def test_builds_from_other_sources_leave_each_others_units_alone(monkeypatch, tmp_path):
    first = compile_units._write_units(tmp_path)
    contents = {path: Path(path).read_text() for path in first}
    fewer = compile_units.units()
    fewer["custom"] = fewer["custom"][:1]
    monkeypatch.setattr(compile_units, "units", lambda: fewer)
    second = compile_units._write_units(tmp_path)
    assert {path: Path(path).read_text() for path in first} == contents
    same = {path for path in first if not Path(path).name.startswith("custom-")}
    assert set(first) & set(second) == same


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("headers", r"Python's headers are missing \(.*Python\.h\): install them .*python3-dev"),
        ("ninja", r"ninja was not found: pip install ninja\."),
    ],
)
def test_what_else_a_build_needs_is_named(monkeypatch, tmp_path, places, missing, said):
    if missing == "headers":
        monkeypatch.setattr(compiler.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    else:
        fake = tmp_path / "c++"
        fake.write_text(FAKE_COMPILER)
        fake.chmod(0o755)
        monkeypatch.setenv("CXX", str(fake))
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

    (tmp_path / "ATen").mkdir()
    (tmp_path / "ATen" / "ATen.h").write_text(f"#pragma once\n{line}\n#error too old\n")
    monkeypatch.setattr(cpp_extension, "include_paths", lambda: [str(tmp_path)])
    asked = {}
    monkeypatch.setattr(cpp_extension, "load", lambda *_, **options: asked.update(options))
    compile_units.main("somewhere", str(tmp_path), ["-O2"])
    first, *_, last = asked["extra_cflags"]
    assert (first, last) == ("-O2", f"-std=c++{standard}")


def test_the_engine_names_its_files_alike_wherever_it_was_compiled():
    import torch

    content = engine.compiled().read_bytes()
    assert b"native/custom/" in content
    for folder in (engine.SOURCES, Path(torch.__file__).parent):
        assert str(folder).encode() not in content
