"""Check folders that keep growing: the recipe cache and the logs of the driver's libraries."""

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
    """A folder's size, number of files, and size of the files written within the last day."""

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
    """Check the folder in which processes store compiled graphs for later processes."""
    settings = _cache_settings(machine)
    about = "recipe cache"
    if settings is None:
        text = "Compiled graphs are only stored in memory, so each process compiles its own."
        yield Finding(about, "green", text, values={"set": False})
        return
    if wrong := _wrong(settings):
        fix = f'Set {_CACHE}="FOLDER,false,1024" (folder, delete at start, maximum in MB).'
        yield Finding(about, "red", f"{settings.variable} {wrong}", fix, {"set": True})
        return
    folder = Path(settings.folder)
    private = {"folder": settings.folder}
    state, problem, fix = _writable(folder)
    if problem:
        text = f"The folder {{folder}} of {settings.variable} {problem}"
        yield Finding(about, state, text, fix, {"set": True}, private)
    else:
        yield _usage(folder, settings, private)
    if settings.delete.lower() in _YES:
        text = (
            f"{settings.variable} empties {{folder}} at the start of each process: graphs are "
            "never reused, and a rank or notebook that starts later deletes the graphs of the "
            "others."
        )
        fix = "Set the second field to false."
        yield Finding(about, "amber", text, fix, {"delete_at_start": True}, private)
    kind = _file_system(machine, folder)
    if _SHARED.fullmatch(kind) and settings.shared.lower() not in _YES:
        text = (
            f"The folder {{folder}} is on a shared file system ({kind}): processes on several "
            "machines may corrupt the cache."
        )
        fix = "Use a local disk, or set the fourth field to true."
        yield Finding(about, "amber", text, fix, {"file_system": kind}, private)


def logs(machine: Machine) -> Iterator[Finding]:
    """Check the log folder's size, its growth within a day, and the free disk space."""
    configured = machine.environment.get("HABANA_LOGS")
    default = machine.path("/var/log/habana_logs")
    if not machine.in_container() or not default.is_dir():
        default = machine.home / ".habana_logs"
    folder = Path(configured) if configured else default
    private = {"folder": str(folder)}
    about = "HABANA_LOGS"
    if not folder.is_dir():
        state, problem, fix = _writable(folder)
        if problem and state == "red":
            text = f"The log folder {{folder}} {problem}"
            yield Finding(about, "amber", text, fix, {"size": 0}, private)
        else:
            text = "No logs exist yet: the first process that acquires a card creates {folder}."
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
        f"{{folder}} contains {content.described()}, including {units.size(content.recent)} in "
        f"files written within a day; the disk has {units.size(free)} free."
    )
    fix = (
        "Remove old logs (`rm -r {folder}/*` while no program is running), increase LOG_LEVEL_ALL, "
        "or set HABANA_LOGS to a folder on another disk."
    )
    if not os.access(folder, os.W_OK | os.X_OK):
        text = "The log folder {folder} is not writable by this user."
        fix = "Set HABANA_LOGS to your own folder."
        yield Finding(about, "amber", text, fix, values, private)
    elif free < _LITTLE_DISK:
        yield Finding(about, "red", text, fix, values, private)
    elif content.size > _LARGE_LOGS or content.recent > min(_FAST_LOGS, free):
        yield Finding(about, "amber", text, fix, values, private)
    else:
        yield Finding(about, "green", text, values=values, private=private)


def _cache_settings(machine: Machine) -> _CacheSettings | None:
    """Return the settings from environment variables; None if no folder is set."""
    if config := machine.environment.get(_CACHE):
        fields = [field.strip() for field in config.split(",")]
        folder, delete, most, shared, *_ = [*fields, "", "", "", ""]
        return _CacheSettings(folder, delete, most, shared, _CACHE) if folder else None
    folder, delete, most = (machine.environment.get(name, "") for name in _OLD_CACHE)
    return _CacheSettings(folder, delete, most, "", _OLD_CACHE[0]) if folder else None


def _wrong(settings: _CacheSettings) -> str:
    """Return a description of an invalid field, or an empty string if all fields are valid."""
    if settings.most and not settings.most.isdecimal():
        return "has an invalid third field, which must be a number of megabytes."
    for field in (settings.delete, settings.shared):
        if field.lower() not in _YES + _NO:
            return "has an invalid second or fourth field, which must be true or false."
    return ""


def _writable(folder: Path) -> tuple[State, str, str]:
    """Return why a folder is not writable and how to fix that; both are empty if it is writable."""
    if folder.is_dir():
        if os.access(folder, os.W_OK | os.X_OK):
            return "green", "", ""
        return "red", "is not writable by this user.", "Use your own folder."
    if folder.exists():
        return "red", "is a file.", "Use a folder."
    parent = next((above for above in folder.parents if above.exists()), folder)
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        problem = "does not exist, and the bridge might not create it."
        return "amber", problem, "Run `mkdir -p {folder}`."
    return "red", "does not exist, and this user cannot create it.", "Use your own folder."


def _usage(folder: Path, settings: _CacheSettings, private: dict[str, str]) -> Finding:
    content, free = _content(folder), _free(folder)
    most = int(settings.most or 1024) << 20
    values = {"set": True, "size": content.size, "most": most, "free": free}
    limit = units.capacity(most)
    text = f"{{folder}} contains {content.described()} of compiled graphs; the limit is {limit}."
    if content.size > 0.9 * most:
        text += " The limit is near: the oldest graphs are removed and must be compiled again."
        fix = "Increase the number of megabytes in the third field."
        return Finding("recipe cache", "amber", text, fix, values, private)
    if free < min(most - content.size, _LITTLE_DISK):
        text += f" The disk has only {units.size(free)} free."
        fix = "Free disk space, or use a folder on another disk."
        return Finding("recipe cache", "amber", text, fix, values, private)
    return Finding("recipe cache", "green", text, values=values, private=private)


def _content(folder: Path) -> _Content:
    """Measure the size of a folder, up to a maximum number of files."""
    size = files = recent = 0
    now = time.time()
    for place, _, names in os.walk(folder):
        for name in names:
            if files >= _MOST_FILES:
                return _Content(size, files, recent, complete=False)
            try:
                status = os.lstat(os.path.join(place, name))
            except OSError:  # log rotation has removed the file
                continue
            files += 1
            size += status.st_size
            recent += status.st_size if now - status.st_mtime < _DAY else 0
    return _Content(size, files, recent, complete=True)


def _free(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _file_system(machine: Machine, folder: Path) -> str:
    """Return the type of the file system that contains a folder; empty if it is unknown."""
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
