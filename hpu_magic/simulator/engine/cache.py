"""Caches of compiled engines: their directories, paths and trust checks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from hpu_magic.private_folder import is_private, unsafe_folder, writable_by_others
from hpu_magic.simulator.engine import key

_SILENCE = 180.0
"""Seconds of inactivity after which a builder, possibly on another host, is considered dead."""

_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EIO, errno.EACCES}


def system_directory() -> Path:
    """Return the cache for all users, ``HPU_MAGIC_SYSTEM_CACHE`` or a folder in Python's prefix."""
    chosen = os.environ.get("HPU_MAGIC_SYSTEM_CACHE")
    return Path(chosen) if chosen else Path(sys.prefix) / "share" / "hpu_magic" / "engine"


def user_directory() -> Path:
    """Return this user's cache, ``HPU_MAGIC_CACHE`` or a folder in the user's cache directory."""
    chosen = os.environ.get("HPU_MAGIC_CACHE")
    if chosen:
        return Path(chosen)
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if user.startswith("~"):  # in a container, the user may not have a name or a home directory
        return temporary_directory()
    return Path(user) / "hpu_magic" / "engine"


def temporary_directory() -> Path:
    """Return a private temporary folder. The path is fixed, unless another user owns that path."""
    folder = Path(tempfile.gettempdir()) / f"hpu_magic-engine-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return folder if is_private(folder) else Path(tempfile.mkdtemp(prefix="hpu_magic-engine-"))


def entry() -> Path:
    """Return the path of the engine within a cache.

    The path consists of a folder, which is named after the engine's key and the system, and a file.
    The path does not depend on the compiler, so a machine without a compiler can load an engine
    that was compiled on another machine.
    """
    return entry_of(key.here())


def entry_of(engine: key.Key) -> Path:
    """Return the path, within a cache, of this system's engine for the given key."""
    return Path(f"{engine}-{key.system()}") / engine.file_name()


def distrust(path: Path) -> str | None:
    """Return why the file at `path` must not be loaded as code, or None if it is trusted.

    The rule is the same as in ssh: the file and its parent directories, up to the home directory or
    Python's prefix, must be owned by this user or root, and must not be writable by other users.
    """
    real = Path(os.path.realpath(path))
    if why := writable_by_others(real):
        return why
    return unsafe_folder(real.parent)


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents for this user only, and check that it is writable.

    Raises
    ------
    OSError
        The folder is not writable.
    """
    missing = [folder, *folder.parents]
    for parent in reversed([place for place in missing if not place.exists()]):
        parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass  # this fails if the file system is read-only or the quota is exceeded


def store(library: Path, stored: Path, *, shared: bool = False) -> None:
    """Copy a library into a cache atomically, so that other processes never see a partial file."""
    if shared:
        for folder in (stored.parents[1], stored.parent):
            if not folder.exists():
                folder.mkdir(parents=True)
                folder.chmod(0o755)  # independent of the umask
    descriptor, private = tempfile.mkstemp(dir=stored.parent, prefix=".building-")
    try:
        with os.fdopen(descriptor, "wb") as copy, library.open("rb") as built:
            shutil.copyfileobj(built, copy)
            os.fchmod(copy.fileno(), 0o755 if shared else 0o700)
            copy.flush()
            os.fsync(copy.fileno())  # this fails if the quota is exceeded
        os.replace(private, stored)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(private)
        raise


@contextlib.contextmanager
def only_builder(library: Path) -> Iterator[Callable[[], None]]:
    """Wait until no other process is building `library`.

    Yields a function that must be called regularly during the build, so that other processes keep
    waiting. The lock is released when the process ends. If the file system does not support
    locking, or the builder shows no activity for a long time, the caller builds the library as
    well. Building twice is safe, because `store` supports concurrent builds.
    """
    path = library.parent / "lock"
    try:
        lock = path.open("a")
    except OSError:
        yield lambda: None
        return
    with lock:
        _wait(lock, library)

        def alive() -> None:
            with contextlib.suppress(OSError):  # the lock is optional
                os.utime(path)

        yield alive


def _wait(lock: IO[str], library: Path) -> None:
    reported = False
    last_sign = None
    last_active = time.monotonic()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return
            raise
        if not reported:
            reported = True
            print(
                "hpu_magic: another process is compiling the simulated device; waiting for it",
                file=sys.stderr,
            )
        sign = os.fstat(lock.fileno()).st_mtime_ns
        if sign != last_sign:
            last_sign, last_active = sign, time.monotonic()
        if library.exists() or time.monotonic() - last_active > _SILENCE:
            return
        time.sleep(0.2)
