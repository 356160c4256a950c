"""The input of the checks: files, environment, distributions, and a snapshot of the cards."""

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

_PATIENCE = 15.0  # seconds

Version = tuple[int, ...]


@dataclass(frozen=True)
class Machine:
    """The machine as seen by a process; this is the only input of a check."""

    environment: Mapping[str, str]
    root: Path  # the folder that contains /proc, /sys, /dev and /etc
    home: Path  # home directory; ~ if the system does not define one for the user
    prefix: Path  # the folder of the Python environment
    search_path: tuple[str, ...]  # folders in which Python looks for distributions
    python: Version
    simulated: bool  # whether the device is simulated because the vendor's package is missing
    cards: Snapshot
    driver: hlsmi.Versions | None  # versions of the driver and firmware; None if hl-smi fails

    @classmethod
    def here(cls) -> Machine:
        """Describe this machine, without acquiring a card or importing the packages to check."""
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
        """Return the path under `root` that corresponds to an absolute path."""
        return self.root / absolute.lstrip("/")

    def text(self, absolute: str) -> str | None:
        """Return the contents of a file; None if it cannot be read."""
        try:
            return self.path(absolute).read_text(errors="replace")
        except OSError:
            return None

    def copies(self, distribution: str) -> list[metadata.Distribution]:
        """Return the installed copies of a distribution; Python uses the first one."""
        found = metadata.Distribution.discover(name=distribution, path=list(self.search_path))
        places: dict[str, metadata.Distribution] = {}
        for copy in found:
            # An incomplete uninstall leaves behind a folder without a version.
            if not (copy.read_text("METADATA") or copy.read_text("PKG-INFO")):
                continue
            # A folder may be on the path twice, for example through a symbolic link.
            place = os.path.realpath(str(copy.locate_file("")))
            places.setdefault(f"{copy.version} {place}", copy)
        return list(places.values())

    def version(self, distribution: str) -> str | None:
        """Return the version of a distribution; None if it is not installed."""
        return next((copy.version for copy in self.copies(distribution)), None)

    def switched_on(self, name: str) -> bool:
        """Return whether an environment variable is set to a true value."""
        return self.environment.get(name, "").strip().lower() in {"1", "true", "yes", "on"}

    def in_container(self) -> bool:
        """Return whether files created by Docker or Podman show that this is a container."""
        return any(self.path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))


def numbers(version: str) -> Version:
    """Return the leading numbers of a version, such as ``(2, 13, 0)`` for ``2.13.0+cpu``."""
    found = re.match(r"\D{0,3}(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _cards() -> Snapshot:
    """Read the cards in a separate thread, because the driver may hang."""
    read: list[Snapshot] = []
    thread = threading.Thread(target=lambda: read.append(monitor.snapshot()), daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    if read:
        return read[0]
    return Snapshot((), "none", f"The driver did not answer within {_PATIENCE:g} s.")


def _driver() -> hlsmi.Versions | None:
    try:
        return hlsmi.versions() if hlsmi.installed() else None
    except hlsmi.HlSmiUnavailableError:
        return None
