"""Build the source archive, the wheel of hpu_magic and the wheels of the engine.

``python tools/dist.py [--into FOLDER] [--keep FOLDER] [--pure | --cached]`` fills FOLDER, which is
``build/dist`` by default. ``engine/wheels.tsv`` lists the engines. Engines that are not cached are
compiled in separate environments, which ``--keep`` keeps for the next run. The environment variable
``TORCH_INDEX`` specifies the index that provides torch. Builds of the same commit are byte-for-byte
identical.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import engine_wheel
from versions import interpreter

from hpu_magic.simulator.engine import cache, key, wheels

PROJECT = Path(__file__).parents[1]
TOOLS_OF_A_BUILD = ("ninja", "packaging", "psutil", "setuptools")


class LeftOut(Exception):
    """Raised if an engine cannot be built here; the message contains the reason."""


def main(arguments: list[str]) -> int:
    """Build everything that can be built here, and list the engines that cannot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--into", type=Path, metavar="FOLDER", default=PROJECT / "build" / "dist")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--pure", action="store_true", help="without the engine's wheels")
    parser.add_argument("--cached", action="store_true", help="only engines that are cached")
    options = parser.parse_args(arguments)
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit_time())
    shutil.rmtree(options.into, ignore_errors=True)
    options.into.mkdir(parents=True)
    pure(options.into)
    if not options.pure:
        with tempfile.TemporaryDirectory(prefix="hpu_magic_dist_") as folder:
            environments = None if options.cached else options.keep or Path(folder)
            engines(options.into, environments)
    for path in sorted(options.into.iterdir()):
        print(f"{path.stat().st_size / 1e6:7.2f} MB  {path.name}")
    return 0


def commit_time() -> str:
    """Return the commit time in seconds or, without a commit, hatchling's default."""
    command = ["git", "log", "-1", "--format=%ct"]
    try:
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "1580601600"
    return done.stdout.strip()


def pure(into: Path) -> None:
    """Build the source archive and the wheel of hpu_magic."""
    subprocess.run(
        [sys.executable, "-I", "-m", "hatchling", "build", "-d", into.resolve()],
        cwd=PROJECT,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def engines(into: Path, environments: Path | None) -> list[wheels.Made]:
    """Build the engines' wheels and the wheel that requires them, and list the omitted engines."""
    made = []
    for row in wheels.table():
        try:
            library = compiled(row, environments)
        except LeftOut as reason:
            print(f"omitted: torch {row.torch}, Python {row.python}, {row.machine}: {reason}")
            continue
        engine_wheel.of_engine(library, key_of(row), row, into)
        made.append(row)
    engine_wheel.of_all(made, into)
    return made


def key_of(row: wheels.Made) -> key.Key:
    """Return the key of the engine for a different torch and Python on the same system."""
    here = f"cpython-{sys.version_info.major}{sys.version_info.minor}-"
    there = f"cpython-{row.python.replace('.', '')}-"
    return key.Key(
        torch=row.torch,
        abi="cxx11",  # all builds since 2.7
        python=key.python_abi().replace(here, there),
        sources=key.sources_digest(),
    )


def compiled(row: wheels.Made, environments: Path | None) -> Path:
    """Return the engine of a row from the cache, and compile it if it is missing.

    Raises `LeftOut` if it is for another kind of machine or its environment cannot be created.
    """
    if (row.system, row.machine) != (sys.platform, platform.machine()):
        raise LeftOut(f"this is {sys.platform} {platform.machine()}")
    library = cache.user_directory() / cache.entry_of(key_of(row))
    if library.exists():
        return library
    if environments is None:
        raise LeftOut("it has not been compiled")
    try:
        python = environment(row, environments)
        subprocess.run(
            [python, "-m", "hpu_magic.command_line", "build"],
            cwd=PROJECT,
            stdout=subprocess.DEVNULL,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as failed:
        raise LeftOut(str(failed)) from failed
    if not library.exists():
        raise LeftOut(f"its compilation did not create {library}")
    return library


def environment(row: wheels.Made, folder: Path) -> Path:
    """Return an interpreter with the torch release of a row, installing torch if necessary."""
    place = folder.resolve() / f"torch-{row.torch}-python-{row.python}"
    python = place / "bin" / "python"
    if (place / "made").exists():
        return python
    subprocess.run([interpreter(row.python), "-I", "-m", "venv", place], check=True)
    index = os.environ.get("TORCH_INDEX")
    pip = [python, "-I", "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    source = ["--index-url", index] if index else []
    subprocess.run([*pip, *source, f"torch=={row.torch}.*"], check=True)
    subprocess.run([*pip, *TOOLS_OF_A_BUILD], check=True)
    (place / "made").touch()
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
