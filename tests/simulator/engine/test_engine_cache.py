"""Test the caches of compiled engines: their keys, and the owners whose files are loaded."""

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
from hpu_magic.simulator.engine import cache, flags, key, sources

STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def test_cache_key_covers_all_dependencies_of_the_engine(monkeypatch, tmp_path):
    import torch

    folder = tmp_path / "native"
    shutil.copytree(sources.SOURCES, folder)
    names = [cache.entry()]
    for change in (
        lambda: monkeypatch.setattr(torch, "__version__", "2.6.0"),
        lambda: monkeypatch.setattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", False),
        lambda: monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.17")),
        lambda: monkeypatch.setattr(platform, "machine", lambda: "riscv64"),
        lambda: monkeypatch.setattr(flags, "FLAGS", ["-O1"]),
        lambda: (folder / "card.h").write_text("// another\n"),
        lambda: (folder / "card.h").rename(folder / "cards.h"),
    ):
        monkeypatch.setattr(sources, "SOURCES", folder)
        change()
        names.append(cache.entry())
    assert names[1].parts[0].startswith("torch-2.6-")
    assert len(set(names)) == len(names)


def test_user_without_name_and_home_has_a_temporary_cache(monkeypatch, tmp_path):
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
def test_published_builds_of_a_minor_release_share_an_engine(version, release):
    assert key.torch_release(version) == release


def test_engine_with_sanitizers_has_a_different_key(monkeypatch):
    plain = cache.entry()
    monkeypatch.setenv("HPU_MAGIC_SANITIZE", "address")
    spec = importlib.util.spec_from_file_location("flags_again", flags.__file__)
    reloaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reloaded)
    assert "-fsanitize=address" in reloaded.FLAGS
    monkeypatch.setattr(flags, "FLAGS", reloaded.FLAGS)
    assert cache.entry() != plain


def test_cached_engine_loads_without_compiler_headers_and_ninja(script):
    engine.compiled()
    out = script(
        """
        import sys, sysconfig
        sys.modules["ninja"] = None
        paths = sysconfig.get_paths
        sysconfig.get_paths = lambda *names: {**paths(*names), "include": "/nowhere"}
        from hpu_magic.simulator import engine
        print(engine.load().__name__)
        """,
        PATH="/nowhere",
        CXX="no-such-compiler",
    )
    assert out == "hpu_magic_engine\n"


def test_system_cache_has_priority_and_is_not_written(places, builds):
    stored = places / "system" / cache.entry()
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"engine for all users")
    for folder in (stored.parent, places / "system"):
        folder.chmod(0o555)
    assert engine.compiled() == stored
    assert builds == []
    assert not (places / "user").exists()


def test_install_fills_the_system_cache_for_all_users(places, builds):
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


def link_to_a_file_of_another_user(library):
    elsewhere = library.parents[2] / "elsewhere.so"
    library.rename(elsewhere)
    os.chown(elsewhere, STRANGER, -1)
    library.symlink_to(elsewhere)


TAMPERINGS = {
    "file of another user": lambda library: os.chown(library, STRANGER, -1),
    "folder of another user": lambda library: os.chown(library.parent, STRANGER, -1),
    "link to a file of another user": link_to_a_file_of_another_user,
    "file writable by a group": lambda library: (
        os.chown(library, -1, STRANGER),
        library.chmod(0o770),
    ),
    "file writable by all": lambda library: library.chmod(0o666),
    "folder writable by all": lambda library: library.parent.chmod(0o777),
    # The sticky bit does not prevent new files.
    "cache writable by all": lambda library: library.parents[1].chmod(0o1777),
}


@pytest.mark.parametrize(
    ("tampering", "reason"),
    [
        pytest.param("file of another user", "belongs to user 54321", marks=as_root),
        pytest.param("folder of another user", "belongs to user 54321", marks=as_root),
        pytest.param("link to a file of another user", "belongs to user 54321", marks=as_root),
        pytest.param("file writable by a group", "by the group 54321", marks=as_root),
        ("file writable by all", "by all users"),
        ("folder writable by all", "by all users"),
        ("cache writable by all", "by all users"),
    ],
)
def test_engine_that_others_can_write_is_ignored(places, builds, capfd, tampering, reason):
    foreign = places / "system" / cache.entry()
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"foreign")
    TAMPERINGS[tampering](foreign)
    loaded = engine.compiled()
    assert (loaded, loaded.read_bytes()) == (places / "user" / cache.entry(), b"engine")
    [message] = capfd.readouterr().err.splitlines()
    assert message.startswith(f"hpu_magic: ignoring the compiled engine {foreign}: ")
    assert reason in message


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            lambda user: (user.mkdir(), user.chmod(0o777)),
            "can be written by all users; the compiled engine is stored in",
        ),
        (lambda user: user.write_text("a file instead of a folder"), "cannot be written"),
    ],
    ids=["writable by all", "a file"],
)
def test_unsuitable_user_cache_is_replaced_with_a_private_folder(
    places, builds, capfd, spoil, reason
):
    spoil(places / "user")
    loaded = engine.compiled()
    assert loaded.is_relative_to(places / "tmp")
    assert loaded.read_bytes() == b"engine"
    assert stat.S_IMODE(loaded.parents[1].stat().st_mode) == 0o700
    [message] = capfd.readouterr().err.splitlines()
    assert message.startswith(f"hpu_magic: {places / 'user'}")
    assert reason in message
    assert engine.compiled() == loaded
    assert len(builds) == 1


def test_full_quota_causes_no_second_build(places, builds, capfd, monkeypatch):
    full = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    store = cache.store

    def store_except_in_the_user_cache(library, stored, **options):
        if stored.is_relative_to(places / "user"):
            raise full
        store(library, stored, **options)

    monkeypatch.setattr(cache, "store", store_except_in_the_user_cache)
    loaded = engine.compiled()
    assert loaded.is_relative_to(places / "tmp")
    assert len(builds) == 1
    [message] = capfd.readouterr().err.splitlines()
    assert os.strerror(errno.EDQUOT) in message


def test_failed_copy_leaves_no_file(places, monkeypatch):
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
def test_temporary_folder_of_another_user_is_not_used(places, builds):
    taken = places / "tmp" / f"hpu_magic-engine-{os.geteuid()}"
    taken.mkdir(mode=0o700)
    os.chown(taken, STRANGER, STRANGER)
    (places / "user").write_text("a file instead of a folder")
    loaded = engine.compiled()
    assert loaded.is_relative_to(places / "tmp")
    assert not loaded.is_relative_to(taken)
    assert list(taken.iterdir()) == []


@as_root
def test_user_with_read_only_home_gets_an_engine(places):
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
        "engine.cache.entry()  # reads files that only root can read\n"
        "with tempfile.TemporaryDirectory() as shared:\n"
        "    os.chmod(shared, 0o1777)\n"
        "    tempfile.tempdir = shared\n"
        f"    os.setegid({STRANGER}); os.seteuid({STRANGER})\n"
        "    try: loaded = engine.compiled()\n"
        "    finally: os.seteuid(0)\n"
        "    print(loaded.read_bytes(), loaded.stat().st_uid, loaded.is_relative_to(shared))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"b'engine' {STRANGER} True\n", done.stderr
    assert "cannot be written (Permission denied)" in done.stderr


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_engine_is_built_on_file_systems_without_locks(places, builds, monkeypatch, number):
    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    assert engine.compiled() == places / "user" / cache.entry()
    assert len(builds) == 1


def test_silent_builder_is_not_awaited_forever(places, builds, monkeypatch, capfd):
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


@pytest.mark.parametrize(("locks", "most"), [("with locks", 1), ("without locks", 2)])
def test_simultaneous_first_uses_create_one_engine(places, locks, most):
    builds = places / "builds"
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, builds, locks], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [racer.communicate(timeout=120)[0] for racer in racers] == [b"b'engine'\n"] * 2
    assert 1 <= len(builds.read_text().splitlines()) <= most
    kept = {path.name for path in (places / "user" / cache.entry()).parent.iterdir()}
    assert kept == {"lock", Path(cache.entry()).name}
