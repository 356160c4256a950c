"""POSIX shared memory through which monitors in other processes read the memory in use."""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import struct
import threading
import time
from pathlib import Path

from hpu_magic.simulator import engine

_FOLDER = Path("/dev/shm")
_LAYOUT = struct.Struct("<3Q")  # version, seconds since the epoch, bytes in use
_VERSION = 1
_REFRESH_SECONDS = 1.0

_starting = threading.Lock()
_published: tuple[int, str] | None = None  # process ID and name


def name() -> str:
    """Return the name of the shared memory; the first call creates it and starts updating it.

    Raises RuntimeError if shared memory is not supported or not writable.
    """
    global _published
    with _starting:
        if _published is None or _published[0] != os.getpid():
            _published = os.getpid(), _publish()
        return _published[1]


def _publish() -> str:
    path = _FOLDER / f"hpu_magic-memory-{os.getpid()}"
    try:
        path.unlink(missing_ok=True)  # a killed process with this ID may have left the file
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as refused:
        raise RuntimeError(
            f"Cannot create {path} to publish the memory in use: {refused.strerror}."
        ) from refused
    try:
        os.ftruncate(descriptor, _LAYOUT.size)
        page = mmap.mmap(descriptor, _LAYOUT.size)
    finally:
        os.close(descriptor)
    _write(page)
    threading.Thread(target=_refresh, args=(page,), name="hpu-memory", daemon=True).start()
    atexit.register(_remove, path, os.getpid())
    return path.name


def _write(page: mmap.mmap) -> None:
    in_use = engine.load().memory_stats()["InUse"]
    _LAYOUT.pack_into(page, 0, _VERSION, int(time.time()), in_use)


def _refresh(page: mmap.mmap) -> None:
    while True:
        time.sleep(_REFRESH_SECONDS)
        _write(page)


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child inherits its parent's exit handlers
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _renew_lock() -> None:
    # Another thread in the parent may have held the lock during the fork.
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
