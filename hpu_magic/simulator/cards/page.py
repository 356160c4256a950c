"""The page of counters of a simulated card, as it lies in its file."""

from __future__ import annotations

import mmap
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from hpu_magic.simulator.cards.configuration import DeviceType

PAGE_SIZE = 4096
MAGIC = b"HPUCARD\0"
VERSION = 1

# Little-endian 64-bit words. The native engine writes the counters through the
# owner's mapping; their offsets are part of its interface.
HEADER = struct.Struct("<8sqqqqq")  # magic, version, capacity, type, owner pid, acquired (ns)
COUNTERS_OFFSET = 64
COUNTERS = struct.Struct("<7q")  # the fields of `Counters`, in order


class PageError(Exception):
    """A file is not the page of a card; the text says what is wrong with it."""


@dataclass(frozen=True)
class Counters:
    """What the allocator of a card's owner reports.

    Attributes
    ----------
    in_use, max_in_use, max_alloc_size : int
        Bytes handed out now, at most so far, and in the largest allocation.
    num_allocs, num_frees : int
        Allocations and frees since the owner last reset them.
    total_allocs, total_frees : int
        Allocations and frees since the card was acquired.
    """

    in_use: int = 0
    max_in_use: int = 0
    num_allocs: int = 0
    num_frees: int = 0
    max_alloc_size: int = 0
    total_allocs: int = 0
    total_frees: int = 0


@dataclass(frozen=True)
class Page:
    """Contents of one card's page."""

    capacity: int
    device_type: DeviceType
    owner_pid: int
    acquired_ns: int
    counters: Counters


def write_page(path: Path, page: Page) -> mmap.mmap:
    """Put a new page at `path` and return it mapped for writing.

    The new file replaces an old one in one step: readers never meet half a
    page, and a process that still maps the old one (a child which the previous
    owner forked) can no longer change what they read.

    Raises
    ------
    OSError
        The file cannot be created, or `path` cannot be replaced.
    """
    content = bytearray(PAGE_SIZE)
    HEADER.pack_into(
        content,
        0,
        MAGIC,
        VERSION,
        page.capacity,
        page.device_type,
        page.owner_pid,
        page.acquired_ns,
    )
    COUNTERS.pack_into(content, COUNTERS_OFFSET, *vars(page.counters).values())
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, content)
        mapping = mmap.mmap(descriptor, PAGE_SIZE)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return mapping


def read_page(path: Path) -> Page | None:
    """Read the page at `path`; None when there is none yet.

    Raises
    ------
    PageError
        Something lies at `path` that is not a whole page of this version.
    """
    try:
        # O_NONBLOCK: opening a FIFO that somebody left here must not wait.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PageError(f"{path} cannot be opened: {error.strerror}.") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PageError(f"{path} is not a regular file.")
        content = os.read(descriptor, PAGE_SIZE + 1)
    finally:
        os.close(descriptor)
    return _parse(path, content)


def _parse(path: Path, content: bytes) -> Page:
    if len(content) != PAGE_SIZE:
        raise PageError(f"{path} does not have the {PAGE_SIZE} bytes of a card's page.")
    magic, version, capacity, number, owner_pid, acquired_ns = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise PageError(f"{path} is not a card's page: it starts with {magic!r}.")
    if version != VERSION:
        raise PageError(f"{path} has page version {version}; this hpu_magic reads {VERSION}.")
    if capacity <= 0 or number not in set(DeviceType):
        raise PageError(f"{path} names no card: type {number} with {capacity} bytes.")
    counters = Counters(*COUNTERS.unpack_from(content, COUNTERS_OFFSET))
    if not 0 <= counters.in_use <= capacity:
        raise PageError(f"{path} says that {counters.in_use} of {capacity} bytes are in use.")
    return Page(capacity, DeviceType(number), owner_pid, acquired_ns, counters)
