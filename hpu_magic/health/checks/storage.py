"""Folders that fill: the cache of compiled graphs, and the logs of the driver's libraries."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpu_magic import units
from hpu_magic.health.finding import Finding, State
from hpu_magic.health.machine import Machine

_MOST_FILES = 50_000
_DAY = 86_400.0
_LARGE_LOGS = 10 << 30
_FAST_LOGS = 5 << 30
_LITTLE_DISK = 1 << 30
_SHARED = re.compile(r"nfs\d?|cifs|smb\w*|lustre|gpfs|ceph|beegfs|glusterfs|afs|9p|fuse\.\w+")
_CACHE = "PT_HPU_RECIPE_CACHE_CONFIG"
_OLD_CACHE = ("PT_RECIPE_CACHE_PATH", "PT_CACHE_FOLDER_DELETE", "PT_CACHE_FOLDER_SIZE_MB")
_YES, _NO = ("1", "true"), ("", "0", "false")


@dataclass(frozen=True)
class _Content:
    """What lies in a folder: bytes, files, and bytes of files that were written within a day."""

    size: int
    files: int
    recent: int
    complete: bool

    def described(self) -> str:
        least = "" if self.complete else "at least "
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{least}{units.size(self.size)} in {least}{files}"


@dataclass(frozen=True)
class _CacheSettings:
    folder: str
    delete: str
    most: str
    shared: str
    variable: str


def recipe_cache(machine: Machine) -> Iterator[Finding]:
    """Look at the folder in which compiled graphs are kept from one process to the next."""
    settings = _cache_settings(machine)
    about = "recipe cache"
    if settings is None:
        text = "Compiled graphs are kept in memory only: each process compiles its own."
        yield Finding(about, "green", text, values={"set": False})
        return
    if wrong := _wrong(settings):
        fix = f'Write {_CACHE}="FOLDER,false,1024" (folder, delete at start, most MB).'
        yield Finding(about, "red", f"{settings.variable} {wrong}", fix, {"set": True})
        return
    folder = Path(settings.folder)
    private = {"folder": settings.folder}
    state, trouble, fix = _writable(folder)
    if trouble:
        text = f"The folder {{folder}} of {settings.variable} {trouble}"
        yield Finding(about, state, text, fix, {"set": True}, private)
    else:
        yield _filling(folder, settings, private)
    if settings.delete.lower() in _YES:
        text = (
            f"{settings.variable} has {{folder}} emptied at the start of each process: nothing is "
            "kept, and ranks or notebooks that start later take it from others."
        )
        fix = "Write false in its second field."
        yield Finding(about, "amber", text, fix, {"delete_at_start": True}, private)
    kind = _file_system(machine, folder)
    if _SHARED.fullmatch(kind) and settings.shared.lower() not in _YES:
        text = (
            f"The folder {{folder}} is on a shared file system ({kind}): processes of several "
            "machines may damage the cache there."
        )
        fix = "Use a local disk, or write true in the fourth field."
        yield Finding(about, "amber", text, fix, {"file_system": kind}, private)


def logs(machine: Machine) -> Iterator[Finding]:
    """Look at the folder of the logs: its size, what was written within a day, and the disk."""
    given = machine.environment.get("HABANA_LOGS")
    default = machine.path("/var/log/habana_logs")
    if not machine.in_container() or not default.is_dir():
        default = machine.home / ".habana_logs"
    folder = Path(given) if given else default
    private = {"folder": str(folder)}
    about = "HABANA_LOGS"
    if not folder.is_dir():
        state, trouble, fix = _writable(folder)
        if trouble and state == "red":
            text = f"The folder {{folder}} of the logs {trouble}"
            yield Finding(about, "amber", text, fix, {"size": 0}, private)
        else:
            text = "There are no logs yet: {folder} is made by the first process that takes a card."
            yield Finding(about, "green", text, values={"size": 0}, private=private)
        return
    content = _content(folder)
    free = _free(folder)
    values = {
        "size": content.size,
        "files": content.files,
        "written_within_a_day": content.recent,
        "free": free,
    }
    text = (
        f"{{folder}} has {content.described()}, {units.size(content.recent)} of it in files "
        f"written within a day; the disk has {units.size(free)} free."
    )
    fix = (
        "Remove old logs (`rm -r {folder}/*` while nothing runs), raise LOG_LEVEL_ALL, or have "
        "HABANA_LOGS name another disk."
    )
    if not os.access(folder, os.W_OK | os.X_OK):
        text = "{folder}, where the logs are to be written, cannot be written by this user."
        yield Finding(
            about, "amber", text, "Have HABANA_LOGS name your own folder.", values, private
        )
    elif free < _LITTLE_DISK:
        yield Finding(about, "red", text, fix, values, private)
    elif content.size > _LARGE_LOGS or content.recent > min(_FAST_LOGS, free):
        yield Finding(about, "amber", text, fix, values, private)
    else:
        yield Finding(about, "green", text, values=values, private=private)


def _cache_settings(machine: Machine) -> _CacheSettings | None:
    """Return what the variables say; None where no folder is named."""
    if given := machine.environment.get(_CACHE):
        fields = [field.strip() for field in given.split(",")]
        folder, delete, most, shared, *_ = [*fields, "", "", "", ""]
        return _CacheSettings(folder, delete, most, shared, _CACHE) if folder else None
    folder, delete, most = (machine.environment.get(name, "") for name in _OLD_CACHE)
    return _CacheSettings(folder, delete, most, "", _OLD_CACHE[0]) if folder else None


def _wrong(settings: _CacheSettings) -> str:
    """Say which field has no meaning; empty where all have."""
    if settings.most and not settings.most.isdecimal():
        return "has no number of megabytes in its third field."
    for field in (settings.delete, settings.shared):
        if field.lower() not in _YES + _NO:
            return "has another word than true or false in its second or fourth field."
    return ""


def _writable(folder: Path) -> tuple[State, str, str]:
    """Say why a folder cannot be written, and the fix; empty where it can."""
    if folder.is_dir():
        if os.access(folder, os.W_OK | os.X_OK):
            return "green", "", ""
        return "red", "cannot be written by this user.", "Name a folder of your own."
    if folder.exists():
        return "red", "is a file.", "Name a folder."
    parent = next((above for above in folder.parents if above.exists()), folder)
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        return (
            "amber",
            "does not exist yet; the bridge may not make it.",
            "Run `mkdir -p {folder}`.",
        )
    return "red", "does not exist and cannot be made by this user.", "Name a folder of your own."


def _filling(folder: Path, settings: _CacheSettings, private: dict[str, str]) -> Finding:
    content, free = _content(folder), _free(folder)
    most = int(settings.most or 1024) << 20
    values = {"set": True, "size": content.size, "most": most, "free": free}
    text = (
        f"{{folder}} has {content.described()} of compiled graphs, at most {units.capacity(most)}."
    )
    if content.size > 0.9 * most:
        text += " It is nearly full: the oldest are dropped and compiled anew."
        fix = "Write more megabytes in the third field."
        return Finding("recipe cache", "amber", text, fix, values, private)
    if free < min(most - content.size, _LITTLE_DISK):
        text += f" The disk has only {units.size(free)} free."
        fix = "Make room, or name a folder on another disk."
        return Finding("recipe cache", "amber", text, fix, values, private)
    return Finding("recipe cache", "green", text, values=values, private=private)


def _content(folder: Path) -> _Content:
    """Measure a folder; of a very large one, as much as is looked through soon."""
    size = files = recent = 0
    now = time.time()
    for place, _, names in os.walk(folder):
        for name in names:
            if files >= _MOST_FILES:
                return _Content(size, files, recent, complete=False)
            try:
                status = os.lstat(os.path.join(place, name))
            except OSError:  # rotated away meanwhile
                continue
            files += 1
            size += status.st_size
            recent += status.st_size if now - status.st_mtime < _DAY else 0
    return _Content(size, files, recent, complete=True)


def _free(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _file_system(machine: Machine, folder: Path) -> str:
    """Return the kind of file system that a folder is on; empty where it is not told."""
    place, kind = "", ""
    absolute = os.path.realpath(folder)
    for line in (machine.text("/proc/mounts") or "").splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mounted = fields[1].replace("\\040", " ").rstrip("/")
        if f"{absolute}/".startswith(f"{mounted}/") and len(mounted) >= len(place):
            place, kind = mounted, fields[2]
    return kind
