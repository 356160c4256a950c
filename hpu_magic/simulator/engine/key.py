"""Keys that identify everything an engine's binary depends on, except the system.

An engine has the same key in a cache and in a wheel. The system is part of the wheel's file name
or, in a cache, of the directory name.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from hpu_magic.simulator.engine import flags, sources

_PUBLISHED = re.compile(r"(\d+\.\d+)\.\d+(\+(cpu|xpu|cu\d+|rocm[\d.]+))?")


@dataclass(frozen=True)
class Key:
    """Properties that must be the same when an engine is compiled and when it is loaded.

    Attributes
    ----------
    torch : str
        The minor release, because its CPU and CUDA builds and all of its patch releases have the
        same C++ interface. For a build that PyTorch does not publish, this is the complete
        version.
    abi : str
        The string layout that the C++ library uses: ``cxx11`` or ``old``.
    python : str
        The interpreter and its ABI, as in the file name suffix of extension modules.
    sources : str
        A digest of the source files and compiler flags.
    """

    torch: str
    abi: str
    python: str
    sources: str

    def __str__(self) -> str:
        digest = _digest(asdict(self).values())
        interpreter = "-".join(self.python.split("-")[:2])
        return f"torch-{self.torch}-{interpreter}-{digest}"

    def file_name(self) -> str:
        """Return the name of the engine's file."""
        return f"{sources.NAME}.{self.python}.so"


def here() -> Key:
    """Return the key of the engine for this torch, Python and source."""
    import torch

    return Key(
        torch=torch_release(str(torch.__version__)),
        abi="cxx11" if torch._C._GLIBCXX_USE_CXX11_ABI else "old",
        python=python_abi(),
        sources=sources_digest(),
    )


def torch_release(version: str) -> str:
    """Return the part of torch's version that an engine depends on."""
    published = _PUBLISHED.fullmatch(version)
    return published[1] if published else version


def python_abi() -> str:
    """Return the interpreter, its ABI and the machine, as in file names of extension modules."""
    return str(sysconfig.get_config_var("EXT_SUFFIX")).strip(".").removesuffix(".so")


def system() -> str:
    """Return the platform of a binary: the system, the processor and the C library."""
    return "-".join((sys.platform, platform.machine(), "".join(platform.libc_ver())))


def sources_digest() -> str:
    """Return a digest of the sources and compiler flags."""
    parts: list[str | bytes] = [*flags.FLAGS]
    for source in sorted(sources.SOURCES.rglob("*.[ch]*")):
        parts += [source.relative_to(sources.SOURCES).as_posix(), source.read_bytes()]
    return _digest(parts)


def _digest(parts: Iterable[str | bytes]) -> str:
    """Return a digest of a sequence of parts, as 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:16]
