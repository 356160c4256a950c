"""The caches of compiled engines: what a name stands for, whose files are loaded as code."""

import errno
import fcntl
import importlib.util
import os
import platform
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hpu_magic.simulator import engine
from hpu_magic.simulator.engine import cache, key, sources

STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def test_the_name_stands_for_all_that_the_binary_depends_on(monkeypatch, tmp_path):
    import torch

    folder = tmp_path / "native"
    shutil.copytree(sources.SOURCES, folder)
    names = [cache.entry()]
    for change in (
        lambda: monkeypatch.setattr(torch, "__version__", "2.6.0"),
        lambda: monkeypatch.setattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", False),
        lambda: monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.17")),
        lambda: monkeypatch.setattr(platform, "machine", lambda: "riscv64"),
        lambda: monkeypatch.setattr(sources, "FLAGS", ["-O1"]),
        lambda: (folder / "card.h").write_text("// another\n"),
        lambda: (folder / "card.h").rename(folder / "cards.h"),
    ):
        monkeypatch.setattr(sources, "SOURCES", folder)
        change()
        names.append(cache.entry())
    assert names[1].parts[0].startswith("torch-2.6-")
    assert len(set(names)) == len(names)


def test_a_user_without_a_name_and_a_home_has_a_temporary_cache(monkeypatch, tmp_path):
    def nobody(number):
        raise KeyError(number)

    for name in ("HOME", "HPU_MAGIC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache.user_directory() == tmp_path / f"hpu_magic-engine-{os.geteuid()}"
    (tmp_path / "engine.so").touch(mode=0o700)
    assert cache.distrust(tmp_path / "engine.so") is None


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.13.0", "2.13"),
        ("2.13.1+cpu", "2.13"),
        ("2.13.0+cu130", "2.13"),
        ("2.13.0+rocm6.4", "2.13"),
        ("2.14.0.dev20260101+cpu", "2.14.0.dev20260101+cpu"),
        ("2.13.0a0+git1a2b3c4", "2.13.0a0+git1a2b3c4"),
    ],
)
def test_the_published_builds_of_a_minor_release_share_an_engine(version, release):
    assert key.torch_release(version) == release


def test_an_engine_with_sanitizers_has_a_name_of_its_own(monkeypatch):
    plain = cache.entry()
    monkeypatch.setenv("HPU_MAGIC_SANITIZE", "address")
    spec = importlib.util.spec_from_file_location("sources_again", sources.__file__)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert "-fsanitize=address" in again.FLAGS
    monkeypatch.setattr(sources, "FLAGS", again.FLAGS)
    assert cache.entry() != plain


def test_a_machine_without_compiler_headers_and_ninja_loads_what_another_one_built(script):
    engine.compiled()  # the other machine
    out = script(
        """
        import sys, sysconfig
        sys.modules["ninja"] = None
        paths = sysconfig.get_paths
        sysconfig.get_paths = lambda *given: {**paths(*given), "include": "/nowhere"}
        from hpu_magic.simulator import engine
        print(engine.load().__name__)
        """,
        PATH="/nowhere",
        CXX="no-such-compiler",
    )
    assert out == "hpu_magic_engine\n"


def test_the_system_cache_comes_first_and_is_never_written(places, builds):
    stored = places / "system" / cache.entry()
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"engine of all")
    for folder in (stored.parent, places / "system"):
        folder.chmod(0o555)
    assert engine.compiled() == stored
    assert builds == []
    assert not (places / "user").exists()


def test_install_fills_a_system_cache_for_all_users(places, builds):
    umask = os.umask(0o077)
    try:
        stored = engine.install(places / "system")
    finally:
        os.umask(umask)
    assert stored == places / "system" / cache.entry()
    assert stored.read_bytes() == b"engine"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o755
    assert stat.S_IMODE(stored.parent.stat().st_mode) == 0o755
    assert engine.compiled() == stored == engine.install(places / "system")
    assert len(builds) == 1


def file_of_another(library):
    os.chown(library, STRANGER, -1)


def folder_of_another(library):
    os.chown(library.parent, STRANGER, -1)


def file_for_all(library):
    library.chmod(0o666)


def folder_for_all(library):
    library.parent.chmod(0o777)


def cache_for_all(library):
    library.parents[1].chmod(0o1777)  # sticky or not: new engines must come from the user alone


def file_for_a_group(library):
    os.chown(library, -1, STRANGER)
    library.chmod(0o770)


def link_to_another(library):
    elsewhere = library.parents[2] / "elsewhere.so"
    library.rename(elsewhere)
    os.chown(elsewhere, STRANGER, -1)
    library.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("tamper", "why"),
    [
        pytest.param(file_of_another, "belongs to user 54321", marks=as_root),
        pytest.param(folder_of_another, "belongs to user 54321", marks=as_root),
        pytest.param(link_to_another, "belongs to user 54321", marks=as_root),
        pytest.param(file_for_a_group, "by the group 54321", marks=as_root),
        (file_for_all, "by all users"),
        (folder_for_all, "by all users"),
        (cache_for_all, "by all users"),
    ],
)
def test_what_others_could_have_written_is_never_loaded(places, builds, capfd, tamper, why):
    theirs = places / "system" / cache.entry()
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    tamper(theirs)
    mine = engine.compiled()
    assert (mine, mine.read_bytes()) == (places / "user" / cache.entry(), b"engine")
    [said] = capfd.readouterr().err.splitlines()
    assert said.startswith(f"hpu_magic: ignoring the compiled engine {theirs}: ")
    assert why in said


def test_a_users_cache_that_others_may_write_gives_way_to_a_private_folder(places, builds, capfd):
    (places / "user").mkdir()
    (places / "user").chmod(0o777)
    mine = engine.compiled()
    assert mine.is_relative_to(places / "tmp")
    assert mine.read_bytes() == b"engine"
    assert stat.S_IMODE(mine.parents[1].stat().st_mode) == 0o700
    [said] = capfd.readouterr().err.splitlines()
    assert "can be written by all users; the compiled engine is kept in" in said
    assert engine.compiled() == mine
    assert len(builds) == 1


def test_a_cache_that_cannot_be_written_gives_way_to_a_private_folder(places, builds, capfd):
    (places / "user").write_text("a file in its place")
    mine = engine.compiled()
    assert mine.is_relative_to(places / "tmp")
    [said] = capfd.readouterr().err.splitlines()
    assert said.startswith(f"hpu_magic: {places / 'user'}")
    assert "cannot be written" in said


def test_a_full_quota_costs_no_second_build(places, builds, capfd, monkeypatch):
    full = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    store = cache.store

    def store_but_at_home(library, stored, **options):
        if stored.is_relative_to(places / "user"):
            raise full
        store(library, stored, **options)

    monkeypatch.setattr(cache, "store", store_but_at_home)
    mine = engine.compiled()
    assert mine.is_relative_to(places / "tmp")
    assert len(builds) == 1
    [said] = capfd.readouterr().err.splitlines()
    assert os.strerror(errno.EDQUOT) in said


def test_a_copy_that_breaks_off_leaves_nothing(places, monkeypatch):
    built = places / "built.so"
    built.write_bytes(b"engine")
    stored = places / "user" / cache.entry()
    cache.make_private(stored.parent)

    def full(_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        cache.store(built, stored)
    assert list(stored.parent.iterdir()) == []


@as_root
def test_a_squatter_in_the_temporary_folder_gets_no_engine(places, builds):
    taken = places / "tmp" / f"hpu_magic-engine-{os.geteuid()}"
    taken.mkdir(mode=0o700)
    os.chown(taken, STRANGER, STRANGER)
    (places / "user").write_text("a file in its place")
    mine = engine.compiled()
    assert mine.is_relative_to(places / "tmp")
    assert not mine.is_relative_to(taken)
    assert list(taken.iterdir()) == []


@as_root
def test_another_user_with_a_home_that_is_read_only_gets_an_engine(places):
    """What root has in its home stays out of reach, and nothing breaks."""
    (places / "tmp").chmod(0o1777)
    code = (
        "import contextlib, os, sys, sysconfig, tempfile, torch\n"
        "from pathlib import Path\n"
        "from hpu_magic.simulator import engine\n"
        "@contextlib.contextmanager\n"
        "def build(alive=None):\n"
        "    with tempfile.TemporaryDirectory() as folder:\n"
        "        Path(folder, 'built.so').write_bytes(b'engine')\n"
        "        yield Path(folder, 'built.so')\n"
        "engine.build = build\n"
        "engine.cache.entry()  # reads what only root may\n"
        "with tempfile.TemporaryDirectory() as shared:\n"
        "    os.chmod(shared, 0o1777)\n"
        "    tempfile.tempdir = shared\n"
        f"    os.setegid({STRANGER}); os.seteuid({STRANGER})\n"
        "    try: mine = engine.compiled()\n"
        "    finally: os.seteuid(0)\n"
        "    print(mine.read_bytes(), mine.stat().st_uid, mine.is_relative_to(shared))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"b'engine' {STRANGER} True\n", done.stderr
    assert "cannot be written (Permission denied)" in done.stderr


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_systems_without_locks_build_for_themselves(places, builds, monkeypatch, number):
    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    assert engine.compiled() == places / "user" / cache.entry()
    assert len(builds) == 1


def test_a_builder_without_a_sign_of_life_is_given_up(places, builds, monkeypatch, capfd):
    monkeypatch.setattr(cache, "_SILENCE", 0.3)
    library = places / "user" / cache.entry()
    cache.make_private(library.parent)
    with (library.parent / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert engine.compiled() == library
    assert len(builds) == 1
    assert "another process is compiling" in capfd.readouterr().err


RACER = """
import contextlib, os, sys, time
from pathlib import Path
from hpu_magic.simulator import engine
if sys.argv[2] == "without locks":
    import errno, fcntl
    def refused(*_):
        raise OSError(errno.ENOLCK, "no locks")
    fcntl.flock = refused

@contextlib.contextmanager
def build(alive=None):
    with open(sys.argv[1], "a") as builds:
        builds.write("built\\n")
    time.sleep(1)
    built = Path(f"{sys.argv[1]}-{os.getpid()}")
    built.write_bytes(b"engine")
    yield built

engine.build = build
print(engine.compiled().read_bytes())
"""


@pytest.mark.parametrize(("locks", "most"), [("with locks", 1), ("without locks", 3)])
def test_first_uses_at_once_end_with_one_whole_engine(places, locks, most):
    builds = places / "builds"
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, builds, locks], stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    assert [racer.communicate(timeout=120)[0] for racer in racers] == [b"b'engine'\n"] * 3
    assert 1 <= len(builds.read_text().splitlines()) <= most
    kept = {path.name for path in (places / "user" / cache.entry()).parent.iterdir()}
    assert kept == {"lock", Path(cache.entry()).name}
