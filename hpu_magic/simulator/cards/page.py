"""The file format of a simulated card's page, which contains its counters."""

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

# The page consists of little-endian 64-bit words. The native engine writes the counters to the
# owner's memory mapping, so it depends on their offsets.
HEADER = struct.Struct("<8sqqqqq")  # magic, version, capacity, type, owner pid, acquired (ns)
COUNTERS_OFFSET = 64
COUNTERS = struct.Struct("<7q")  # the fields of `Counters`, in the same order


class PageError(Exception):
    """A file is not a valid page with the state of a card. The message contains the reason."""


@dataclass(frozen=True)
class Counters:
    """The memory counters of a card's owner.

    Attributes
    ----------
    in_use, max_in_use, max_alloc_size : int
        The bytes in use, their peak, and the size of the largest allocation in bytes.
    num_allocs, num_frees : int
        The number of allocations and frees since the owner last reset these counters.
    total_allocs, total_frees : int
        The number of allocations and frees since the card was acquired.
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
    """The contents of a card's page."""

    capacity: int
    device_type: DeviceType
    owner_pid: int
    acquired_ns: int
    counters: Counters


def write_page(path: Path, page: Page) -> mmap.mmap:
    """Create a page at `path` and return a writable mapping of it.

    The new file atomically replaces any existing one. Therefore, readers never see an incomplete
    page, and a process that still maps the old file, such as a fork of the previous owner, cannot
    change the new one.

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
    """Return the page at `path`, or None if the file does not exist.

    Raises
    ------
    PageError
        The file is not a valid page of this version.
    """
    try:
        # O_NONBLOCK prevents the call from blocking if the file is a FIFO.
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
        raise PageError(f"{path} is not a card's page: its size is not {PAGE_SIZE} bytes.")
    magic, version, capacity, number, owner_pid, acquired_ns = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise PageError(f"{path} is not a card's page: it starts with {magic!r}.")
    if version != VERSION:
        raise PageError(
            f"{path} has page version {version}, but this hpu_magic supports only "
            f"version {VERSION}."
        )
    if capacity <= 0 or number not in set(DeviceType):
        raise PageError(
            f"{path} describes an invalid card: type {number}, {capacity} bytes of memory."
        )
    counters = Counters(*COUNTERS.unpack_from(content, COUNTERS_OFFSET))
    if not 0 <= counters.in_use <= capacity:
        raise PageError(
            f"{path} is damaged: it reports {counters.in_use} of {capacity} bytes in use."
        )
    return Page(capacity, DeviceType(number), owner_pid, acquired_ns, counters)
