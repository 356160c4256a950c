"""Engines that pip brought: a wheel for each minor release of torch and Python.

Such a wheel holds a package with the engine and ``engine.json``: its key, and a digest of its file.
``wheels.tsv`` names those that are made. ``hpu_magic_engine`` requires them for all releases of
torch, since pip cannot choose by the torch that is installed.
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
    """An installed engine that does not belong here; the text names it and says why."""


@dataclass(frozen=True)
class Made:
    """A row of the table: what an engine's wheel is made for.

    Attributes
    ----------
    torch, python : str
        Minor releases, such as ``2.13`` and ``3.11``.
    system, machine : str
        As ``sys.platform`` and ``platform.machine()`` say.
    """

    torch: str
    python: str
    system: str
    machine: str


def table() -> list[Made]:
    """Return which wheels are made."""
    _, *rows = TABLE.read_text(encoding="utf-8").splitlines()
    return [Made(*row.split("\t")) for row in rows]


def package(torch: str) -> str:
    """Return the name of the package, and of the distribution, with the engine for a release."""
    return f"{DISTRIBUTION}_torch{torch.replace('.', '_')}"


def manifest(key: Key, library: Path) -> str:
    """Return what a wheel says of the engine that it holds."""
    said = {"version": __version__, **asdict(key), "sha256": _digest(library)}
    return json.dumps(said, indent=1) + "\n"


def installed(key: Key) -> Path | None:
    """Return the engine that an installed wheel brings for this key, if there is one.

    Raises
    ------
    RefusedEngine
        There is one, and it does not belong here or is not as it was built.
    """
    folder = _folder(key.torch)
    if folder is None:
        return None
    library = folder / key.file_name()
    if why := _refusal(folder, library, key):
        raise RefusedEngine(f"the installed engine {folder.name} ({folder}) is not loaded: {why}")
    return library


def is_installed(library: Path) -> bool:
    """Tell whether an engine is one that a wheel brought."""
    return library.parent.name.startswith(f"{DISTRIBUTION}_torch")


def reinstall(torch: str) -> str:
    """Say how to get an engine as it was built."""
    return f"pip install --force-reinstall --no-deps {package(torch)}=={__version__}"


def offer(key: Key) -> str:
    """Say which engines pip can bring here, or elsewhere if there is none for this torch."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    rows = table()
    here = (key.torch, python, sys.platform, platform.machine())
    if Made(*here) in rows:
        return (
            f"There is a compiled one for torch {key.torch} and Python {python}: "
            f'pip install "{DISTRIBUTION}=={__version__}".'
        )
    releases = _listed({row.torch for row in rows})
    pythons = _listed({row.python for row in rows})
    systems = _listed({f"{row.system} {row.machine}" for row in rows})
    return (
        f"There is no compiled one for torch {key.torch}, Python {python} and {sys.platform} "
        f"{platform.machine()}; {DISTRIBUTION} has those for torch {releases}, "
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
    """Say why an engine does not belong here, or None when it does."""
    try:
        said = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        version = said["version"]
        built = Key(*(str(said[part]) for part in asdict(key)))
        digest = said["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"its {MANIFEST} cannot be read. Mend it with {reinstall(key.torch)}."
    if built.torch != key.torch:
        return f"it was built for torch {built.torch}, and this is torch {key.torch}."
    if built.python != key.python:
        return f"it was built for {built.python}, and this is {key.python}."
    if built.abi != key.abi:
        return f"it was built for the {built.abi} ABI of C++, and this torch has the {key.abi} one."
    if version != __version__:
        return (
            f"it belongs to hpu_magic {version}, and this is {__version__}. "
            f"Get its counterpart with pip install {DISTRIBUTION}=={__version__}."
        )
    if built.sources != key.sources:
        return "it was built from other sources than those that are here."
    if not library.exists():
        return f"its file {library.name} is missing. Mend it with {reinstall(key.torch)}."
    if _digest(library) != digest:
        return (
            f"its file {library.name} is not as it was built. Mend it with {reinstall(key.torch)}."
        )
    return None


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()
