"""Test compilation of the engine, and its errors."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from started_process import is_running, wait_for

from hpu_magic.simulator import engine
from hpu_magic.simulator.engine import cache, compile_units, compiler, sources


@pytest.fixture
def failing_compiler(monkeypatch, tmp_path):
    """A compiler whose compilations fail."""
    compiler = tmp_path / "c++"
    compiler.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--version*) echo fake 1.0;; '
        '*) echo "x.cpp:1: error: no such thing" >&2; exit 1;; esac\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))


def test_missing_compiler_is_reported_with_a_fix(monkeypatch, tmp_path, places):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        engine.BuildError, match=r"no C\+\+ compiler was found: install one .*g\+\+"
    ):
        engine.compiled()


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("is_clone", [True, False])
def test_prebuilt_engines_are_offered_only_to_installed_packages(monkeypatch, tmp_path, is_clone):
    assert sources.is_clone()  # the tests run in a clone
    if not is_clone:
        monkeypatch.setattr(sources, "SOURCES", tmp_path / "site-packages/a/b/native")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(engine.BuildError) as refusal:
        engine.compiled()
    assert ("prebuilt engine" in str(refusal.value)) is not is_clone


@pytest.mark.usefixtures("failing_compiler", "places")
def test_failed_compilation_is_reported_with_its_first_error(capfd):
    with pytest.raises(engine.BuildError, match=r"no such thing .*/torch-[^/]*\.log"):
        engine.compiled()
    assert "compiling the simulated device" in capfd.readouterr().err


@pytest.mark.usefixtures("failing_compiler", "places")
def test_build_removes_folders_of_killed_builds():
    place = cache.temporary_directory()
    abandoned, running = place / "build-abandoned", place / "build-running"
    for folder in (abandoned, running):
        folder.mkdir()
        (folder / "one.o").touch()
    os.utime(abandoned, (time.time() - 7200,) * 2)
    with pytest.raises(engine.BuildError):
        engine.compiled()
    assert list(place.glob("build-*")) == [running]


SLOW_COMPILER = """#!/bin/sh
case "$*" in *-c*) echo $$ >> {started}; exec sleep 300;; *) echo fake 1.0;; esac
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_ended_build_ends_its_compilers(places, builds, number):
    """If a kernel is killed or interrupted while it compiles, the next kernel compiles again."""
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
        wait_for(lambda: started.exists() and started.read_text().endswith("\n"))
        builder.send_signal(number)
        assert builder.wait(30) != 0
        compilers = [int(pid) for pid in started.read_text().split()]
        wait_for(lambda: not any(map(is_running, compilers)))
    finally:
        builder.kill()
        builder.wait()
    assert engine.compiled().read_bytes() == b"engine"
    assert len(builds) == 1


def test_every_source_is_compiled_once(tmp_path):
    compile_units._write_units(tmp_path)
    included = [
        line.removeprefix("#include <").removesuffix(">")
        for unit in tmp_path.glob("*.cpp")
        for line in unit.read_text().splitlines()
    ]
    there = [path.relative_to(engine.SOURCES) for path in engine.SOURCES.rglob("*.cpp")]
    assert sorted(included) == sorted(map(str, there))


def test_small_folders_are_compiled_together():
    folders = {
        unit: {path.relative_to(engine.SOURCES).with_suffix("").parts[0] for path in files}
        for unit, files in compile_units.units().items()
    }
    together = folders.pop("small")
    assert {"bindings", "events", "threads"} <= together
    assert folders == {unit: {unit} for unit in folders}
    assert "custom" in folders


def test_builds_from_different_sources_do_not_share_changed_units(monkeypatch, tmp_path):
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
    ("missing", "message"),
    [
        ("headers", r"Python's headers are missing \(.*Python\.h\): install them .*python3-dev"),
        ("ninja", r"ninja was not found: install it with pip install ninja\."),
    ],
)
@pytest.mark.usefixtures("failing_compiler", "places")
def test_missing_headers_and_ninja_are_reported_with_a_fix(monkeypatch, tmp_path, missing, message):
    if missing == "headers":
        monkeypatch.setattr(compiler.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    else:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setitem(sys.modules, "ninja", None)
    with pytest.raises(engine.BuildError, match=message):
        engine.compiled()


@pytest.mark.parametrize(
    ("line", "standard"),
    [
        ("#if !defined(_MSC_VER) && __cplusplus < 201703L", "17"),
        ("    (!defined(_MSVC_LANG) && __cplusplus < 202002L)", "20"),
        ("#pragma once", "17"),
    ],
)
def test_engine_is_compiled_with_the_oldest_standard_that_the_headers_accept(
    monkeypatch, tmp_path, line, standard
):
    from torch.utils import cpp_extension

    (tmp_path / "ATen").mkdir()
    (tmp_path / "ATen" / "ATen.h").write_text(f"#pragma once\n{line}\n#error too old\n")
    monkeypatch.setattr(cpp_extension, "include_paths", lambda: [str(tmp_path)])
    build_options = {}
    monkeypatch.setattr(cpp_extension, "load", lambda *_, **options: build_options.update(options))
    compile_units.main("somewhere", str(tmp_path), ["-O2"])
    first, *_, last = build_options["extra_cflags"]
    assert (first, last) == ("-O2", f"-std=c++{standard}")


def test_engine_contains_only_relative_source_paths():
    import torch

    content = engine.compiled().read_bytes()
    assert b"native/custom/" in content
    for folder in (engine.SOURCES, Path(torch.__file__).parent):
        assert str(folder).encode() not in content
