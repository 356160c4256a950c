"""Test prebuilt engines that pip installed, their wheels, and reasons to ignore an engine."""

import dataclasses
import json
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hpu_magic
from hpu_magic.simulator import engine
from hpu_magic.simulator.engine import cache, wheels
from hpu_magic.simulator.engine import key as keys

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import dist
import engine_wheel

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
HERE = wheels.Made(keys.here().torch, PYTHON, sys.platform, platform.machine())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the cached engine."""
    folder = tmp_path_factory.mktemp("wheel")
    return engine_wheel.of_engine(engine.compiled(), keys.here(), HERE, folder)


@pytest.fixture
def package(wheel, tmp_path, monkeypatch):
    """The engine's package in a folder on Python's path."""
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    monkeypatch.syspath_prepend(unpacked)
    return unpacked / wheels.package(keys.here().torch)


def test_wheel_metadata_contains_torch_python_and_platform(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [archive.read(name) for name in names if name.endswith("/METADATA")]
    name = wheels.package(keys.here().torch)
    tag = PYTHON.replace(".", "")
    assert wheel.name.startswith(f"{name}-{hpu_magic.__version__}-cp{tag}-cp{tag}-manylinux_2_")
    assert wheel.name.endswith(f"_{platform.machine()}.whl")
    assert {each for each in names if each.startswith(f"{name}/")} == {
        f"{name}/__init__.py",
        f"{name}/engine.json",
        f"{name}/{Path(cache.entry()).name}",
    }
    lines = metadata.decode().splitlines()
    assert f"Requires-Dist: hpu-magic=={hpu_magic.__version__}" in lines
    assert f"Requires-Python: =={PYTHON}.*" in lines


def test_wheel_is_reproducible(wheel, tmp_path):
    second = engine_wheel.of_engine(engine.compiled(), keys.here(), HERE, tmp_path)
    assert (second.name, second.read_bytes()) == (wheel.name, wheel.read_bytes())


def test_cache_and_wheel_use_the_same_key(wheel):
    """The key of a row in the table equals the key that this installation calculates."""
    here = keys.here()
    assert dist.key_of(HERE) == here
    assert cache.entry() == cache.entry_of(here)
    with zipfile.ZipFile(wheel) as archive:
        manifest = json.loads(archive.read(f"{wheels.package(here.torch)}/engine.json"))
    assert {part: manifest[part] for part in dataclasses.asdict(here)} == dataclasses.asdict(here)


def test_installed_engine_loads_without_compiler_and_cache(package, places, script):
    out = script(
        """
        import torch
        from hpu_magic.simulator import engine
        print(torch.ones(2, device="hpu").sum().item(), engine.load().__spec__.origin)
        """,
        HPU_MAGIC_SIMULATOR="1",
        PYTHONPATH=f"{package.parent}:{Path(hpu_magic.__file__).parents[1]}",
        PATH="/nowhere",
        CXX="no-such-compiler",
    )
    assert out == f"2.0 {package / Path(cache.entry()).name}\n"
    assert not (places / "user").exists()


def test_installed_engine_has_priority_over_compilation_but_not_over_caches(
    package, places, builds
):
    assert engine.compiled().parent == package
    cached = engine.install(places / "system")
    assert engine.compiled() == cached
    assert builds == []


def change(part, value):
    """Return a function that changes a value in a package's manifest."""

    def manifest(package):
        content = json.loads((package / "engine.json").read_text())
        (package / "engine.json").write_text(json.dumps({**content, part: value}))

    return manifest


def tampered(package):
    library = package / Path(cache.entry()).name
    content = bytearray(library.read_bytes())
    content[-1] ^= 1
    library.write_bytes(content)


@pytest.mark.parametrize(
    ("change_package", "reason"),
    [
        (change("torch", "2.1"), "it was built for torch 2.1, but this is torch {here.torch}."),
        (
            change("python", "cpython-310-x86_64-linux-gnu"),
            "it was built for cpython-310-x86_64-linux-gnu, but this is {here.python}.",
        ),
        (
            change("abi", "old"),
            "it was built for the old C++ ABI, but this torch uses the cxx11 ABI.",
        ),
        (
            change("version", "0.0.9"),
            "it belongs to hpu_magic 0.0.9, but this is {version}. "
            "Get the matching engine with pip install hpu_magic_engine=={version}.",
        ),
        (change("sources", "0" * 16), "its sources differ from the installed ones."),
        (tampered, "its file {file} has changed since it was built. Fix it with {reinstall}."),
        (
            lambda package: (package / Path(cache.entry()).name).unlink(),
            "its file {file} is missing. Fix it with {reinstall}.",
        ),
        (
            lambda package: (package / "engine.json").write_text("[]"),
            "its engine.json cannot be read. Fix it with {reinstall}.",
        ),
    ],
)
def test_unsuitable_installed_engine_is_ignored_with_a_reason(
    package, places, builds, capfd, change_package, reason
):
    change_package(package)
    assert engine.compiled() == places / "user" / cache.entry()
    assert len(builds) == 1
    here = keys.here()
    reason = reason.format(
        here=here,
        version=hpu_magic.__version__,
        file=Path(cache.entry()).name,
        reinstall=wheels.reinstall(here.torch),
    )
    assert capfd.readouterr().err == (
        f"hpu_magic: the installed engine {package.name} ({package}) is not loaded: {reason}\n"
    )


def test_engine_that_cannot_be_loaded_is_compiled(package, places, builds, monkeypatch, capfd):
    def loaded(library):
        if library.parent == package:
            raise ImportError("GLIBC_2.99 not found")
        return library

    monkeypatch.setattr(engine, "_engine", None)
    monkeypatch.setattr(engine, "_import", loaded)
    assert engine.load() == places / "user" / cache.entry()
    library = package / Path(cache.entry()).name
    assert capfd.readouterr().err == (
        f"hpu_magic: the installed engine {library} cannot be loaded (GLIBC_2.99 not found).\n"
    )


def test_requirements_list_all_releases_for_each_python():
    rows = [
        wheels.Made("2.9", "3.11", "linux", "x86_64"),
        wheels.Made("2.12", "3.11", "linux", "x86_64"),
        wheels.Made("2.12", "3.13", "linux", "x86_64"),
    ]
    older, newer = (
        f"python_version == '{python}' and sys_platform == 'linux' and platform_machine == 'x86_64'"
        for python in ("3.11", "3.13")
    )
    own = hpu_magic.__version__
    assert engine_wheel.requirements(rows) == [
        f"torch>=2.9,<2.13,!=2.10.*,!=2.11.*; {older}",
        f"hpu_magic_engine_torch2_9=={own}; {older}",
        f"hpu_magic_engine_torch2_12=={own}; {older}",
        f"torch>=2.12,<2.13; {newer}",
        f"hpu_magic_engine_torch2_12=={own}; {newer}",
    ]


def test_unavailable_engines_are_omitted_from_files_and_requirements(
    tmp_path, places, monkeypatch, capsys
):
    here = (sys.platform, platform.machine())
    rows = [wheels.Made("2.13", "3.11", *here), wheels.Made("2.13", "3.11", here[0], "riscv64")]
    monkeypatch.setattr(wheels, "table", lambda: rows)
    assert dist.engines(tmp_path, None) == []
    assert capsys.readouterr().out == (
        f"omitted: torch 2.13, Python 3.11, {here[1]}: it has not been compiled\n"
        f"omitted: torch 2.13, Python 3.11, riscv64: this is {' '.join(here)}\n"
    )
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [archive.read(name) for name in archive.namelist() if "METADATA" in name]
    required = [line for line in metadata.decode().splitlines() if "Requires-Dist" in line]
    assert required == [f"Requires-Dist: hpu-magic=={hpu_magic.__version__}"]


def test_torch_without_an_engine_gets_the_list_of_supported_releases():
    here = dataclasses.replace(keys.here(), torch="2.6")
    rows = wheels.table()
    said = wheels.offer(here)
    assert said.startswith(f"No prebuilt engine is available for torch 2.6, Python {PYTHON} and ")
    for release in {row.torch for row in rows}:
        assert release in said.partition("hpu_magic_engine has engines for torch ")[2]


def test_torch_with_an_engine_gets_the_install_command(monkeypatch):
    row = wheels.Made("2.13", PYTHON, sys.platform, platform.machine())
    monkeypatch.setattr(wheels, "table", lambda: [row])
    here = dataclasses.replace(keys.here(), torch="2.13")
    assert wheels.offer(here) == (
        f"A prebuilt engine for torch 2.13 and Python {PYTHON} is available: "
        f'pip install "hpu_magic_engine=={hpu_magic.__version__}".'
    )


@pytest.mark.parametrize(
    ("versions", "tag"),
    [
        ("GLIBC_2.34\nx GLIBC_2.2.5\nx GLIBCXX_3.4.22", "manylinux_2_34_x86_64"),
        ("GLIBC_2.17\nx GLIBCXX_3.4.29", "manylinux_2_34_x86_64"),
        ("GLIBC_2.36\nx GLIBCXX_3.4.30", "manylinux_2_36_x86_64"),
        ("GLIBC_2.17", "manylinux_2_27_x86_64"),
    ],
)
def test_platform_tag_is_the_oldest_that_the_library_supports(monkeypatch, versions, tag):
    symbols = subprocess.CompletedProcess([], 0, stdout=f"x {versions}\n")
    monkeypatch.setattr(engine_wheel.subprocess, "run", lambda *_, **__: symbols)
    assert engine_wheel.platform_tag(Path("engine.so"), "x86_64") == tag


def test_library_newer_than_all_known_systems_is_refused(monkeypatch):
    symbols = subprocess.CompletedProcess([], 0, stdout="x GLIBCXX_3.4.99\n")
    monkeypatch.setattr(engine_wheel.subprocess, "run", lambda *_, **__: symbols)
    with pytest.raises(ValueError, match=r"engine\.so requires GLIBCXX_3\.4\.99, which is newer"):
        engine_wheel.platform_tag(Path("engine.so"), "x86_64")


def test_page_of_versions_lists_the_wheels():
    page = Path(dist.PROJECT, "docs", "versions.md").read_text()
    [section] = re.findall(r"^## Engine wheels\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| ([\d.]+) \| (.+) \|$", section, re.MULTILINE)
    listed = {(torch, python) for torch, pythons in rows for python in pythons.split(", ")}
    assert listed == {(row.torch, row.python) for row in wheels.table()}
    assert {(row.system, row.machine) for row in wheels.table()} == {("linux", "x86_64")}
