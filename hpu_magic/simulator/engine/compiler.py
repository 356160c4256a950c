"""Compiles the engine in a separate process and shows the progress."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hpu_magic import child_python
from hpu_magic.simulator.engine import cache, flags, key, sources, wheels

_SCRATCH = "build-"
_ABANDONED = 3600.0  # seconds without a new file; a running build writes one every few minutes


class BuildError(RuntimeError):
    """The engine could not be compiled."""


@contextlib.contextmanager
def build(alive: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """Compile the engine and yield the path of the library, which is deleted afterwards.

    Parameters
    ----------
    alive : callable
        Called regularly while the compiler runs.

    Raises
    ------
    BuildError
        A compiler or ninja is missing, or the compilation failed.
    """
    check_tools()
    print(f"hpu_magic: compiling the simulated device.{_offer()}", file=sys.stderr)
    place = cache.temporary_directory()
    units = place / "units"
    units.mkdir(mode=0o700, exist_ok=True)
    _remove_abandoned(place)
    with tempfile.TemporaryDirectory(dir=place, prefix=_SCRATCH) as scratch:
        log = place / f"{cache.entry().parent.name}.log"  # other processes may also be building
        _compile(Path(scratch), units, log, alive)
        yield Path(scratch) / f"{sources.NAME}.so"


def _offer() -> str:
    """Return a sentence about prebuilt engines, or nothing in a clone, which may be newer."""
    return "" if sources.is_clone() else f" {wheels.offer(key.here())}"


def _remove_abandoned(place: Path) -> None:
    """Remove the scratch folders of builds that were killed."""
    for folder in place.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):  # another process may remove the folder, too
            if time.time() - folder.stat().st_mtime > _ABANDONED:
                shutil.rmtree(folder)


def _compile(scratch: Path, units: Path, log: Path, alive: Callable[[], None]) -> None:
    with log.open("wb") as output:
        # The builder runs in its own session, so that all compilers can be terminated. The builder
        # also exits when its standard input is closed.
        builder = subprocess.Popen(
            child_python.command(f"{__package__}.compile_units", scratch, units, *flags.FLAGS),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )
        try:
            _show_progress(builder, scratch, alive)
        finally:
            if builder.poll() is None:  # interrupted
                os.killpg(builder.pid, signal.SIGTERM)
                builder.wait()
            assert builder.stdin is not None
            builder.stdin.close()
    if builder.returncode or not (scratch / f"{sources.NAME}.so").exists():
        raise BuildError(_failure(log))


def check_tools() -> None:
    """Raise an error if a tool that the build needs is missing.

    Raises
    ------
    BuildError
        The compiler, Python's headers or ninja are missing. The message says how to install them.
    """
    compiled = "The simulated device is compiled on first use"
    if not (shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")):
        raise BuildError(
            f"{compiled}, but no C++ compiler was found: install one (Debian and Ubuntu: apt-get "
            "install g++; macOS: xcode-select --install), set CXX to its name, or use an engine "
            "compiled on a similar machine (run hpu-magic build --dir DIR there, and set "
            f"HPU_MAGIC_SYSTEM_CACHE=DIR here).{_offer()}"
        )
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not headers.exists():
        raise BuildError(
            f"{compiled}, but Python's headers are missing "
            f"({headers}): install them (Debian and Ubuntu: apt-get install python3-dev)."
            f"{_offer()}"
        )
    if _ninja_directory() is None:
        raise BuildError(
            f"{compiled}, but ninja was not found: install it with pip install ninja.{_offer()}"
        )


def _ninja_directory() -> str | None:
    """Return ninja's folder, which is not on PATH if the environment is not active."""
    try:
        from ninja import BIN_DIR
    except ImportError:
        found = shutil.which("ninja")
        return str(Path(found).parent) if found else None
    return str(BIN_DIR)


def _environment() -> dict[str, str]:
    environment = child_python.environment()
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    environment["PATH"] = f"{_ninja_directory()}{os.pathsep}{environment.get('PATH', '')}"
    environment.pop("HPU_MAGIC_SIMULATOR", None)
    return environment


def _show_progress(
    builder: subprocess.Popen[bytes], scratch: Path, alive: Callable[[], None]
) -> None:
    import torch

    what = (
        f"hpu_magic: compiling the simulated device for torch {torch.__version__} (first use only)"
    )
    total = len(sources.units())
    started = time.monotonic()
    shown = -1
    while builder.poll() is None:
        alive()
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
        f"(complete output: {log})."
    )
