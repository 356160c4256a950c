"""What the checks look at: files, environment, distributions, and the cards as they were read."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hpu_magic import backend, monitor
from hpu_magic.monitor import Snapshot, hlsmi

_PATIENCE = 15.0  # seconds that a driver may take

Version = tuple[int, ...]


@dataclass(frozen=True)
class Machine:
    """A machine as one process of it sees it. Checks know nothing else.

    Attributes
    ----------
    environment : dict of str to str
        The environment variables.
    root : Path
        Where ``/proc``, ``/sys``, ``/dev`` and ``/etc`` are.
    home, prefix : Path
        The user's own folder, ``~`` where the system knows none, and that of the Python
        environment.
    search_path : tuple of str
        Folders in which Python finds distributions.
    python : tuple of int
        Version of Python.
    simulated : bool
        Whether the vendor's package is absent, and the device therefore simulated.
    cards : Snapshot
        The cards and who holds them.
    driver : hlsmi.Versions or None
        What ``hl-smi`` tells of driver and firmware; None where it does not answer.
    """

    environment: Mapping[str, str]
    root: Path
    home: Path
    prefix: Path
    search_path: tuple[str, ...]
    python: Version
    simulated: bool
    cards: Snapshot
    driver: hlsmi.Versions | None

    @classmethod
    def here(cls) -> Machine:
        """Look at this machine. Acquires no card and imports none of what it asks about."""
        return cls(
            environment=dict(os.environ),
            root=Path("/"),
            home=Path(os.path.expanduser("~")),
            prefix=Path(sys.prefix),
            search_path=tuple(sys.path),
            python=tuple(sys.version_info[:3]),
            simulated=backend.is_simulated(),
            cards=_cards(),
            driver=_driver(),
        )

    def path(self, absolute: str) -> Path:
        """Return where an absolute path is."""
        return self.root / absolute.lstrip("/")

    def text(self, absolute: str) -> str | None:
        """Return what a file holds; None where it cannot be read."""
        try:
            return self.path(absolute).read_text(errors="replace")
        except OSError:
            return None

    def copies(self, distribution: str) -> list[metadata.Distribution]:
        """Return the installed copies of a distribution; Python takes the first."""
        found = metadata.Distribution.discover(name=distribution, path=list(self.search_path))
        places: dict[str, metadata.Distribution] = {}
        for copy in found:
            # What a broken removal leaves has no version.
            if not (copy.read_text("METADATA") or copy.read_text("PKG-INFO")):
                continue
            # A folder may be on the path twice, and by a link.
            place = os.path.realpath(str(copy.locate_file("")))
            places.setdefault(f"{copy.version} {place}", copy)
        return list(places.values())

    def version(self, distribution: str) -> str | None:
        """Return the version of an installed distribution; None where there is none."""
        return next((copy.version for copy in self.copies(distribution)), None)

    def switched_on(self, name: str) -> bool:
        """Tell whether an environment variable means yes."""
        return self.environment.get(name, "").strip().lower() in {"1", "true", "yes", "on"}

    def in_container(self) -> bool:
        """Tell whether this is a container, as far as its files say so."""
        return any(self.path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))


def numbers(version: str) -> Version:
    """Return the leading numbers of a version: ``(2, 13, 0)`` of ``2.13.0+cpu``."""
    found = re.match(r"\D{0,3}(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _cards() -> Snapshot:
    """Read the cards in a thread, since a driver may hang."""
    read: list[Snapshot] = []
    thread = threading.Thread(target=lambda: read.append(monitor.snapshot()), daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    if read:
        return read[0]
    return Snapshot((), "none", f"The driver has not answered for {_PATIENCE:g} s.")


def _driver() -> hlsmi.Versions | None:
    try:
        return hlsmi.versions() if hlsmi.installed() else None
    except hlsmi.HlSmiUnavailable:
        return None
