"""The native engine: compiled once for the torch that is installed, then loaded from a cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

SOURCES = Path(__file__).parent / "native"
NAME = "hpu_magic_engine"
_FLAGS = ["-O2", "-DNDEBUG"]  # NDEBUG as in PyTorch's own build: some of its headers differ by it

_engine: ModuleType | None = None
_loading = threading.Lock()


class BuildError(RuntimeError):
    """The engine could not be compiled."""


def load() -> ModuleType:
    """Return the engine, compiling it at its first use on this machine.

    Raises
    ------
    BuildError
        A compiler or ninja is missing, or the compilation failed.
    """
    global _engine
    with _loading:
        if _engine is None:
            _engine = _import(compiled())
        return _engine


def compiled() -> Path:
    """Return the compiled engine for this torch, Python, compiler and source."""
    place = cache_directory() / _key()
    library = place / f"{NAME}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if library.exists():
        return library
    place.mkdir(parents=True, exist_ok=True)
    with _only_builder(place):
        if not library.exists():  # another process may have built it while this one waited
            _build(library)
    return library


def cache_directory() -> Path:
    """Directory of compiled engines: ``HPU_MAGIC_CACHE``, or the user's cache."""
    chosen = os.environ.get("HPU_MAGIC_CACHE")
    if chosen:
        return Path(chosen)
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user) / "hpu_magic" / "engine"


def units() -> dict[str, list[Path]]:
    """Sources of each translation unit: a folder is one, so PyTorch's headers are read once."""
    found: dict[str, list[Path]] = {}
    for source in sorted(SOURCES.rglob("*.cpp")):
        found.setdefault(source.relative_to(SOURCES).with_suffix("").parts[0], []).append(source)
    return found


def _key() -> str:
    import torch

    digest = hashlib.sha256()
    for part in (_compiler_identity(), " ".join(_FLAGS), platform.machine()):
        digest.update(part.encode() + b"\0")
    for source in sorted(SOURCES.rglob("*.[ch]*")):
        digest.update(str(source.relative_to(SOURCES)).encode() + b"\0" + source.read_bytes())
    return f"torch-{torch.__version__}-{sys.implementation.cache_tag}-{digest.hexdigest()[:16]}"


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


def _compiler_identity() -> str:
    compiler = _compiler()
    if compiler is None:
        return ""
    asked = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return asked.stdout.partition("\n")[0]


@contextlib.contextmanager
def _only_builder(place: Path) -> Iterator[None]:
    """Hold the lock of one cache entry; it ends with the process, so a crash blocks nobody."""
    with open(place / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                "hpu_magic: another process is compiling the simulated device, waiting for it",
                file=sys.stderr,
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(library: Path) -> None:
    _check_tools()
    place_of_units = library.parents[1] / "units"
    place_of_units.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        log = library.parent / "build.log"
        with log.open("wb") as output:
            builder = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "hpu_magic.simulator.build",
                    scratch,
                    str(place_of_units),
                    *_FLAGS,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_builder_environment(),
            )
            try:
                _show_progress(builder, Path(scratch))
            finally:
                if builder.poll() is None:  # interrupted
                    builder.terminate()
                    builder.wait()
        built = Path(scratch) / f"{NAME}.so"
        if builder.returncode or not built.exists():
            raise BuildError(_failure(log))
        os.replace(built, library)


def _check_tools() -> None:
    if _compiler() is None:
        raise BuildError(
            "The simulated device is compiled at its first use and no C++ compiler was found: "
            "install one (Debian and Ubuntu: apt-get install g++; macOS: xcode-select --install) "
            "or name it in CXX."
        )
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not headers.exists():
        raise BuildError(
            f"The simulated device is compiled at its first use and Python's headers are missing "
            f"({headers}): install them (Debian and Ubuntu: apt-get install python3-dev)."
        )
    if _ninja_directory() is None:
        raise BuildError(
            "The simulated device is compiled at its first use and ninja was not found: "
            "pip install ninja."
        )


def _ninja_directory() -> str | None:
    """Directory of ninja; an environment that is not activated has it off the PATH."""
    try:
        from ninja import BIN_DIR
    except ImportError:
        found = shutil.which("ninja")
        return str(Path(found).parent) if found else None
    return str(BIN_DIR)


def _builder_environment() -> dict[str, str]:
    environment = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    environment["PATH"] = f"{_ninja_directory()}{os.pathsep}{environment.get('PATH', '')}"
    # With -m, the working directory must not hide the package that asks.
    package = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [package, environment.get("PYTHONPATH")])
    )
    environment.pop("HPU_MAGIC_SIMULATOR", None)
    return environment


def _show_progress(builder: subprocess.Popen[bytes], scratch: Path) -> None:
    import torch

    what = f"hpu_magic: compiling the simulated device for torch {torch.__version__}, once"
    total = len(units())
    started = time.monotonic()
    shown = -1
    while builder.poll() is None:
        done = len(list(scratch.glob("*.o")))
        if done != shown:
            print(f"\r{what}: {done} of {total} files", end="", file=sys.stderr, flush=True)
            shown = done
        with contextlib.suppress(subprocess.TimeoutExpired):
            builder.wait(0.5)
    seconds = time.monotonic() - started
    outcome = "failed" if builder.returncode else "done"
    print(f"\r{what}: {outcome} after {seconds:.0f} s", file=sys.stderr, flush=True)


def _failure(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if "error" in line.lower()] or lines[-3:]
    return (
        f"The simulated device could not be compiled: {errors[0] if errors else 'no output'} "
        f"(the whole output is in {log})."
    )


def _import(library: Path) -> ModuleType:
    loader = ExtensionFileLoader(NAME, str(library))
    module = module_from_spec(ModuleSpec(NAME, loader, origin=str(library)))
    loader.exec_module(module)
    return module
