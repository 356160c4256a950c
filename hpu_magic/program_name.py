"""What a process is called for others: its notebook, or its program and script; no arguments.

Arguments often hold tokens and passwords, so they do not leave the process with its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from hpu_magic import sessions
from hpu_magic.plain_text import printable

LONGEST = 80
"""Characters of a name or a command line."""

ENDED = "ended meanwhile"

_PYTHON = re.compile(r"(python|pypy)[0-9.]*[a-z]?(\.exe)?")
_SHELLS = {"sh", "bash", "dash", "ksh", "zsh"}
_KERNELS = {"ipykernel", "ipykernel_launcher", "ipykernel_launcher.py"}
_SESSION = b"JPY_SESSION_NAME="
# Options whose value is a word of its own, unless it follows the letter at once.
_PYTHON_VALUES, _SHELL_VALUES = "WX", "oO"
_LONG_WITH_VALUE = {"--check-hash-based-pycs", "--rcfile", "--init-file"}


def program_name(pid: int) -> str:
    """Name a running process: ``analysis.ipynb`` for a notebook's kernel, else ``python train.py``.

    Raises
    ------
    PermissionError
        This user may not see what the process is.
    """
    words = command_words(pid)
    if not words:
        return ENDED
    return _shortened(_notebook(pid, words) or _named(words))


def full_command(pid: int) -> str:
    """Return a notebook's name, or a command line with all arguments, for its owner alone.

    Raises
    ------
    PermissionError
        This user may not see what the process is.
    """
    words = command_words(pid)
    if not words:
        return ENDED
    typed = " ".join([os.path.basename(words[0]), *words[1:]])
    return _shortened(_notebook(pid, words) or typed)


def command_words(pid: int) -> list[str]:
    """Return the words of a process's command line; none when it has ended.

    Raises
    ------
    PermissionError
        This user may not see what the process is.
    """
    if not Path("/proc/self/cmdline").exists():
        import subprocess  # loading the extension does not wait for it

        question = ["ps", "-o", "command=", "-p", str(pid)]
        answer = subprocess.run(question, capture_output=True, text=True, check=False)
        return answer.stdout.split()
    try:
        line = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return []
    words = line.rstrip("\0").split("\0")
    # A process that gives itself a title writes one text, with its arguments as it likes.
    first = words[0].split() if not os.path.exists(words[0]) else words[:1]
    return [*first, *words[1:]]


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
    """Return what an interpreter runs, from the words after its name.

    Parameters
    ----------
    words : sequence of str
        Options, then a script and its arguments.
    ending : str
        Letters of the options that stand for a script: ``c`` (code) and ``m`` (module).
    with_value : str
        Letters of the options that take a value.
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
    """Tell whether Python runs an IPython kernel, as a module or as its file."""
    if not _PYTHON.fullmatch(os.path.basename(words[0])):
        return False
    return _target(words[1:], "cm", _PYTHON_VALUES).removeprefix("-m ") in _KERNELS


def _notebook(pid: int, words: Sequence[str]) -> str | None:
    """Return the name of a kernel's notebook: as the kernel tells it, else as its server did."""
    session = sessions.session(pid)
    if session is not None and session.name:
        return session.name
    if session is not None and session.notebook:
        return os.path.basename(session.notebook)
    # What a kernel starts inherits its environment and is no kernel.
    return _session_name(pid) if _is_kernel(words) else None


def _session_name(pid: int) -> str | None:
    """Return the notebook's name, which the server puts into its kernel's environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # another user's, ended meanwhile, or a system without such files
        return None
    found = next((one for one in environment.split(b"\0") if one.startswith(_SESSION)), None)
    return os.path.basename(os.fsdecode(found[len(_SESSION) :])) if found else None


def _shortened(name: str) -> str:
    name = printable(" ".join(name.split()))
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
