"""Caches of compiled engines: folders, names of engines, and trust in files."""

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
"""Seconds without activity after which a builder, possibly on another host, counts as dead."""

_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EIO, errno.EACCES}


def system_directory() -> Path:
    """Folder of engines for all users: ``HPU_MAGIC_SYSTEM_CACHE``, or in this Python's prefix."""
    chosen = os.environ.get("HPU_MAGIC_SYSTEM_CACHE")
    return Path(chosen) if chosen else Path(sys.prefix) / "share" / "hpu_magic" / "engine"


def user_directory() -> Path:
    """Folder of engines that this user compiled: ``HPU_MAGIC_CACHE``, or in the user's cache."""
    chosen = os.environ.get("HPU_MAGIC_CACHE")
    if chosen:
        return Path(chosen)
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if user.startswith("~"):  # a container's user may have no name or home
        return temporary_directory()
    return Path(user) / "hpu_magic" / "engine"


def temporary_directory() -> Path:
    """Private temporary folder: the same one each time, unless another user owns it."""
    folder = Path(tempfile.gettempdir()) / f"hpu_magic-engine-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return folder if is_private(folder) else Path(tempfile.mkdtemp(prefix="hpu_magic-engine-"))


def entry() -> Path:
    """Path of the engine within a cache: a folder for its key and the system, and its file.

    The path does not depend on the compiler, so a machine without one can load the engine of
    another machine.
    """
    return entry_of(key.here())


def entry_of(engine: key.Key) -> Path:
    """Path within a cache of an engine for this system and any torch and Python."""
    return Path(f"{engine}-{key.system()}") / engine.file_name()


def distrust(path: Path) -> str | None:
    """Return why the file at `path` must not be loaded as code; None if it is trusted.

    The rule is the same as in ssh: the file and its parent folders, up to the home or Python's
    prefix, must belong to this user or root, and other users must not be able to write them.
    """
    real = Path(os.path.realpath(path))
    if why := writable_by_others(real):
        return why
    return unsafe_folder(real.parent)


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents, private to this user, and check that it is writable.

    Raises
    ------
    OSError
        The folder cannot be written.
    """
    missing = [folder, *folder.parents]
    for parent in reversed([place for place in missing if not place.exists()]):
        parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass  # fails on a read-only file system or a full quota


def store(library: Path, stored: Path, *, shared: bool = False) -> None:
    """Copy a library into a cache atomically, so that other processes never see a part of it."""
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
            os.fsync(copy.fileno())  # reports a full quota
        os.replace(private, stored)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(private)
        raise


@contextlib.contextmanager
def only_builder(library: Path) -> Iterator[Callable[[], None]]:
    """Wait until no other process builds `library`.

    Yields a function to call regularly during the build, so that other processes keep waiting. The
    lock ends with the process. If the file system has no locks, or the builder shows no activity
    for a long time, the caller also builds, because `store` is safe with several builders.
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
