"""Build what pip installs: the source archive, the wheel of hpu_magic, and those of the engine.

``python tools/dist.py [--into FOLDER] [--keep FOLDER] [--pure | --cached]`` fills FOLDER, which is
``build/dist`` by default. Which engines there are is said in ``engine/wheels.tsv``; one
that is in the cache is taken from there, the others are compiled in environments of their own,
which lie in the folder of ``--keep`` and are there for the next run. ``TORCH_INDEX`` in the
environment names an index to take torch from. Two builds of one commit give the same files.
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
    """An engine that cannot be built here; the text says why."""


def main(arguments: list[str]) -> int:
    """Build all that can be built here, and say what was left out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--into", type=Path, metavar="FOLDER", default=PROJECT / "build" / "dist")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--pure", action="store_true", help="without the engine's wheels")
    parser.add_argument("--cached", action="store_true", help="with no engine to be compiled")
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
    """Return the second of the commit, and where there is none that of hatchling's own choice."""
    asked = ["git", "log", "-1", "--format=%ct"]
    try:
        told = subprocess.run(asked, cwd=PROJECT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "1580601600"
    return told.stdout.strip()


def pure(into: Path) -> None:
    """Build the source archive and the wheel of hpu_magic."""
    subprocess.run(
        [sys.executable, "-I", "-m", "hatchling", "build", "-d", into.resolve()],
        cwd=PROJECT,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def engines(into: Path, environments: Path | None) -> list[wheels.Made]:
    """Build the wheels of the engine, and the one that requires them; say which were left out."""
    made = []
    for row in wheels.table():
        try:
            library = compiled(row, environments)
        except LeftOut as why:
            print(f"left out: torch {row.torch}, Python {row.python}, {row.machine}: {why}")
            continue
        engine_wheel.of_engine(library, key_of(row), row, into)
        made.append(row)
    engine_wheel.of_all(made, into)
    return made


def key_of(row: wheels.Made) -> key.Key:
    """Return the key of the engine for another torch and Python on a system like this."""
    here = f"cpython-{sys.version_info.major}{sys.version_info.minor}-"
    there = f"cpython-{row.python.replace('.', '')}-"
    return key.Key(
        torch=row.torch,
        abi="cxx11",  # all builds since 2.7
        python=key.python_abi().replace(here, there),
        sources=key.sources_digest(),
    )


def compiled(row: wheels.Made, environments: Path | None) -> Path:
    """Return the engine of a row from the cache, where it is compiled if it is missing.

    Raises
    ------
    LeftOut
        It is for another kind of machine, or its environment cannot be made.
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
        raise LeftOut(f"its compilation left no {library}")
    return library


def environment(row: wheels.Made, folder: Path) -> Path:
    """Return an interpreter with the torch of a row, installed where it is missing."""
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
