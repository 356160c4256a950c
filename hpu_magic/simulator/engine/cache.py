"""Where compiled engines are kept, under what names, and whose files are loaded as code."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hpu_magic.private_folder import is_private, unsafe_folder, writable_by_others
from hpu_magic.simulator.engine import key

_SILENCE = 180.0
"""Seconds without a sign of life after which a builder, on another host perhaps, is given up."""

_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EIO, errno.EACCES}


def system_directory() -> Path:
    """Engines for all users of this Python: ``HPU_MAGIC_SYSTEM_CACHE``, or a place beside it."""
    chosen = os.environ.get("HPU_MAGIC_SYSTEM_CACHE")
    return Path(chosen) if chosen else Path(sys.prefix) / "share" / "hpu_magic" / "engine"


def user_directory() -> Path:
    """Engines that this user compiled: ``HPU_MAGIC_CACHE``, or the user's cache."""
    chosen = os.environ.get("HPU_MAGIC_CACHE")
    if chosen:
        return Path(chosen)
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if user.startswith("~"):  # a container may run under a number without a name, or a home
        return temporary_directory()
    return Path(user) / "hpu_magic" / "engine"


def temporary_directory() -> Path:
    """Private folder for what finds no other place, the same each time unless its name is taken."""
    folder = Path(tempfile.gettempdir()) / f"hpu_magic-engine-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return folder if is_private(folder) else Path(tempfile.mkdtemp(prefix="hpu_magic-engine-"))


def entry() -> Path:
    """Path of the engine within a cache: its key and the system, then its file.

    What it was built with is no part of that: a machine without a compiler loads what another
    one has built.
    """
    return entry_of(key.here())


def entry_of(engine: key.Key) -> Path:
    """Path of an engine for this system, whichever torch and Python it is for."""
    return Path(f"{engine}-{key.system()}") / engine.file_name()


def distrust(path: Path) -> str | None:
    """Say why what lies at `path` must not be loaded as code, or None when it may.

    As ssh does with its files: it and the folders above, up to the home or Python's own, belong
    to this user or to root, and nobody else may write them.
    """
    real = Path(os.path.realpath(path))
    if why := writable_by_others(real):
        return why
    return unsafe_folder(real.parent)


def make_private(folder: Path) -> None:
    """Make a folder, and those above that are missing, for this user alone, and try it.

    Raises
    ------
    OSError
        It cannot be written.
    """
    missing = [folder, *folder.parents]
    for parent in reversed([place for place in missing if not place.exists()]):
        parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass  # a file system may be read-only, a quota full


def store(library: Path, stored: Path, *, shared: bool = False) -> None:
    """Copy a library into a cache at once, so that nobody ever sees a part of it."""
    if shared:
        for folder in (stored.parents[1], stored.parent):
            if not folder.exists():
                folder.mkdir(parents=True)
                folder.chmod(0o755)  # whatever the umask
    descriptor, private = tempfile.mkstemp(dir=stored.parent, prefix=".building-")
    try:
        with os.fdopen(descriptor, "wb") as copy, library.open("rb") as built:
            shutil.copyfileobj(built, copy)
            os.fchmod(copy.fileno(), 0o755 if shared else 0o700)
            copy.flush()
            os.fsync(copy.fileno())  # a full quota shows here at the latest
        os.replace(private, stored)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(private)
        raise


@dataclass(frozen=True)
class Builder:
    """The right to build one entry; `alive` tells those who wait that somebody is at it."""

    alive: Callable[[], None]


@contextlib.contextmanager
def only_builder(library: Path) -> Iterator[Builder]:
    """Wait until nobody else builds `library`, as far as the file system knows.

    The lock ends with the process. Where there are no locks, or their holder has been silent for
    long, the caller builds for itself: `store` is safe with several builders.
    """
    path = library.parent / "lock"
    try:
        lock = path.open("a")
    except OSError:
        yield Builder(lambda: None)
        return
    with lock:
        _wait(lock, library)

        def alive() -> None:
            with contextlib.suppress(OSError):  # the lock is a courtesy
                os.utime(path)

        yield Builder(alive)


def _wait(lock: IO[str], library: Path) -> None:
    told = False
    seen = None
    heard = time.monotonic()
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
        if not told:
            told = True
            print(
                "hpu_magic: another process is compiling the simulated device, waiting for it",
                file=sys.stderr,
            )
        sign = os.fstat(lock.fileno()).st_mtime_ns
        if sign != seen:
            seen, heard = sign, time.monotonic()
        if library.exists() or time.monotonic() - heard > _SILENCE:
            return
        time.sleep(0.2)
