"""The public name of a process: its notebook, or its program and script without arguments.

Arguments often contain tokens and passwords, so other users must not see them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from hpu_magic import sessions
from hpu_magic.plain_text import printable

LONGEST = 80
"""Maximum length of a name or a command line, in characters."""

ENDED = "ended process"

_PYTHON = re.compile(r"(python|pypy)[0-9.]*[a-z]?(\.exe)?")
_SHELLS = {"sh", "bash", "dash", "ksh", "zsh"}
_SESSION = b"JPY_SESSION_NAME="
_KERNELS = {"ipykernel", "ipykernel_launcher", "ipykernel_launcher.py"}
# Options that take a value: the next word, unless the value directly follows the letter.
_PYTHON_VALUES, _SHELL_VALUES = "WX", "oO"
_LONG_WITH_VALUE = {"--check-hash-based-pycs", "--rcfile", "--init-file"}


def program_name(pid: int, session: sessions.SessionState | None) -> str:
    """Return the name of a process: ``analysis.ipynb`` for a kernel, else ``python train.py``.

    Like the other functions in this module, it raises PermissionError if this user is
    not allowed to read the command line of the process.
    """
    words = command_words(pid)
    return _shortened(_notebook(pid, words, session) or _named(words)) if words else ENDED


def full_command(pid: int) -> str:
    """Return a notebook's name, or a full command line, which only its owner may see."""
    words = command_words(pid)
    if not words:
        return ENDED
    command = " ".join([os.path.basename(words[0]), *words[1:]])
    return _shortened(_notebook(pid, words, sessions.session(pid)) or command)


def command_words(pid: int) -> list[str]:
    """Return the words of a process's command line, or an empty list if it has ended."""
    try:
        line = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return [] if os.path.exists("/proc/self") else _words_without_proc(pid)
    words = line.rstrip("\0").split("\0")
    # A process that changes its title replaces all arguments with a single string.
    first = words[0].split() if not os.path.exists(words[0]) else words[:1]
    return [*first, *words[1:]]


def _words_without_proc(pid: int) -> list[str]:
    import psutil  # imported here, so that hl-smi works on Linux without psutil

    try:
        return psutil.Process(pid).cmdline()
    except psutil.AccessDenied as error:
        raise PermissionError(
            f"This user cannot read the command line of process {pid}."
        ) from error
    except psutil.NoSuchProcess:
        return []


def _named(words: Sequence[str]) -> str:
    if _is_kernel(words):
        return "Jupyter kernel"
    program = os.path.basename(words[0])
    if _PYTHON.fullmatch(program):
        return f"{program} {_target(words[1:], 'cm', _PYTHON_VALUES)}".rstrip()
    if program.lstrip("-") in _SHELLS:
        return f"{program} {_target(words[1:], 'c', _SHELL_VALUES)}".rstrip()
    return program


def _target(words: Sequence[str], ending: str, with_value: str) -> str:
    """Return the script or module of an interpreter, from the words after its name.

    `ending` contains the letters of options that replace the script, ``c`` (code) and ``m``
    (module), and `with_value` those of options that take a value.
    """
    rest = iter(words)
    for word in rest:
        if word == "--":
            return os.path.basename(next(rest, ""))
        if word.startswith("--"):
            if word in _LONG_WITH_VALUE:
                next(rest, None)
            continue
        if len(word) < 2 or word[0] not in "-+":
            return os.path.basename(word)
        for place, letter in enumerate(word[1:], 2):
            if letter in ending:
                return f"-m {word[place:] or next(rest, '')}" if letter == "m" else f"-{letter}"
            if letter in with_value:
                if not word[place:]:
                    next(rest, None)
                break
    return ""


def _is_kernel(words: Sequence[str]) -> bool:
    """Return whether this is Python running an IPython kernel, as a module or as a file."""
    if not _PYTHON.fullmatch(os.path.basename(words[0])):
        return False
    return _target(words[1:], "cm", _PYTHON_VALUES).removeprefix("-m ") in _KERNELS


def _notebook(pid: int, words: Sequence[str], session: sessions.SessionState | None) -> str | None:
    """Return a kernel's notebook, as reported by its session or its server."""
    if session is not None and session.name:
        return session.name
    if session is not None and session.notebook:
        return os.path.basename(session.notebook)
    # A kernel's children inherit its environment but are not kernels.
    return _session_name(pid) if _is_kernel(words) else None


def _session_name(pid: int) -> str | None:
    """Return the notebook's name, which the server passes in the kernel's environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    found = next((each for each in environment.split(b"\0") if each.startswith(_SESSION)), None)
    return os.path.basename(os.fsdecode(found[len(_SESSION) :])) if found else None


def _shortened(name: str) -> str:
    name = printable(" ".join(name.split()))
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
