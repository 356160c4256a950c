"""Prebuilt engines in wheels, one for each combination of torch and Python minor releases.

A wheel contains a package with the engine and ``engine.json``, which contains the engine's key and
a digest of its file. ``wheels.tsv`` lists the wheels. ``hpu_magic_engine`` depends on the wheels
for all torch releases, because pip cannot select a wheel based on the installed torch.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Collection
from dataclasses import asdict, dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from hpu_magic import __version__
from hpu_magic.simulator.engine.key import Key
from hpu_magic.simulator.engine.sources import NAME as DISTRIBUTION

TABLE = Path(__file__).with_name("wheels.tsv")
MANIFEST = "engine.json"


class RefusedEngine(RuntimeError):
    """Raised if an installed engine cannot be used. The message names it and says why."""


@dataclass(frozen=True)
class Made:
    """A row of ``wheels.tsv``, which describes the target of an engine's wheel.

    Attributes
    ----------
    torch, python : str
        Minor releases, for example ``2.13`` and ``3.11``.
    system, machine : str
        The values of ``sys.platform`` and ``platform.machine()``.
    """

    torch: str
    python: str
    system: str
    machine: str


def table() -> list[Made]:
    """Return the rows of ``wheels.tsv``."""
    _, *rows = TABLE.read_text(encoding="utf-8").splitlines()
    return [Made(*row.split("\t")) for row in rows]


def package(torch: str) -> str:
    """Return the name of the package and distribution with the engine for a torch release."""
    return f"{DISTRIBUTION}_torch{torch.replace('.', '_')}"


def manifest(key: Key, library: Path) -> str:
    """Return the contents of a wheel's ``engine.json``."""
    content = {"version": __version__, **asdict(key), "sha256": _digest(library)}
    return json.dumps(content, indent=1) + "\n"


def installed(key: Key) -> Path | None:
    """Return the engine for this key from an installed wheel, or None if there is no such wheel.

    Raises
    ------
    RefusedEngine
        The installed engine does not match the key, or its file has changed.
    """
    folder = _folder(key.torch)
    if folder is None:
        return None
    library = folder / key.file_name()
    if why := _refusal(folder, library, key):
        raise RefusedEngine(f"the installed engine {folder.name} ({folder}) is not loaded: {why}")
    return library


def is_installed(library: Path) -> bool:
    """Return whether an engine is part of an installed wheel."""
    return library.parent.name.startswith(f"{DISTRIBUTION}_torch")


def reinstall(torch: str) -> str:
    """Return the command that reinstalls the engine for a torch release."""
    return f"pip install --force-reinstall --no-deps {package(torch)}=={__version__}"


def offer(key: Key) -> str:
    """Describe the wheel for this machine or, if there is none, the available wheels."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    rows = table()
    here = (key.torch, python, sys.platform, platform.machine())
    if Made(*here) in rows:
        return (
            f"A prebuilt engine for torch {key.torch} and Python {python} is available: "
            f'pip install "{DISTRIBUTION}=={__version__}".'
        )
    releases = _listed({row.torch for row in rows})
    pythons = _listed({row.python for row in rows})
    systems = _listed({f"{row.system} {row.machine}" for row in rows})
    return (
        f"No prebuilt engine is available for torch {key.torch}, Python {python} and "
        f"{sys.platform} {platform.machine()}; {DISTRIBUTION} has engines for torch {releases}, "
        f"Python {pythons}, {systems}."
    )


def _listed(words: Collection[str]) -> str:
    def numbers(word: str) -> list[int]:
        return [int(part) for part in word.split(".") if part.isdecimal()]

    *others, last = sorted(words, key=lambda word: (numbers(word), word))
    return f"{', '.join(others)} and {last}" if others else last


def _folder(torch: str) -> Path | None:
    spec = PathFinder.find_spec(package(torch))
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else None


def _refusal(folder: Path, library: Path, key: Key) -> str | None:
    """Return why an engine does not match the key, or None if it does."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        version = content["version"]
        built = Key(*(str(content[part]) for part in asdict(key)))
        digest = content["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"its {MANIFEST} cannot be read. Fix it with {reinstall(key.torch)}."
    if built.torch != key.torch:
        return f"it was built for torch {built.torch}, but this is torch {key.torch}."
    if built.python != key.python:
        return f"it was built for {built.python}, but this is {key.python}."
    if built.abi != key.abi:
        return f"it was built for the {built.abi} C++ ABI, but this torch uses the {key.abi} ABI."
    if version != __version__:
        return (
            f"it belongs to hpu_magic {version}, but this is {__version__}. Get the matching "
            f"engine with pip install {DISTRIBUTION}=={__version__}."
        )
    if built.sources != key.sources:
        return "its sources differ from the installed ones."
    if not library.exists():
        return f"its file {library.name} is missing. Fix it with {reinstall(key.torch)}."
    if _digest(library) != digest:
        return (
            f"its file {library.name} has changed since it was built. "
            f"Fix it with {reinstall(key.torch)}."
        )
    return None


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()
