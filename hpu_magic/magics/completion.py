"""Tab completes options, the values that an option may take, and names of variables."""

from __future__ import annotations

import argparse
import re
from typing import Any

from IPython.core.error import TryNext

from hpu_magic.magics.command import CommandMagics

_COMMAND = r"%{1,2}hpu"


def enable(shell: Any) -> None:
    """Offer the completions in `shell`."""
    shell.set_hook("complete_command", _complete, re_key=_COMMAND)


def disable(shell: Any) -> None:
    """Take the completions back."""
    commands = shell.strdispatchers.get("complete_command")
    for pattern in [one for one in getattr(commands, "regexs", {}) if one.pattern == _COMMAND]:
        del commands.regexs[pattern]


def _complete(shell: Any, event: Any) -> list[str]:
    """Return completions of the word at the cursor.

    Raises
    ------
    TryNext
        The word is the user's own: IPython completes it.
    """
    command = event.command.lstrip("%")
    magic = shell.find_line_magic(command) or shell.find_cell_magic(command)
    parser = getattr(magic, "parser", None)
    words = event.text_until_cursor.split()
    if parser is None or event.text_until_cursor.rstrip() == event.command:
        raise TryNext
    word = "" if event.text_until_cursor[-1:].isspace() else words[-1]
    previous = words[-1] if not word else words[-2]
    actions = {name: one for one in parser._actions for name in one.option_strings}
    if "=" in word and word.startswith("--"):
        name = word.partition("=")[0]
        found = [f"{name}={value}" for value in _choices(magic, actions.get(name))]
    elif previous in actions and actions[previous].nargs != 0:
        found = _choices(magic, actions[previous])
    elif word.startswith("-"):
        found = sorted(name for name in actions if name.startswith("--"))
    else:
        positional = [one for one in parser._actions if not one.option_strings]
        found = [value for one in positional for value in _choices(magic, one)]
        if not found and positional:
            found = _variables(shell, word)
        elif not positional and not word:
            found = sorted(name for name in actions if name.startswith("--"))
    matching = [one for one in found if one.startswith(word)]
    if not matching:
        raise TryNext
    return _from_token(matching, word, event.symbol)


def _variables(shell: Any, word: str) -> list[str]:
    """Return the user's variables, or what the variable before the last dot has."""
    owner, dot, _ = word.rpartition(".")
    if not dot:
        hidden = shell.user_ns_hidden
        return [name for name in shell.user_ns if name not in hidden and name[0] != "_"]
    first, *attributes = owner.split(".")
    value = shell.user_ns.get(first)
    for attribute in attributes:
        value = getattr(value, attribute, None)
    return [f"{owner}.{name}" for name in dir(value) if name[0] != "_"] if value is not None else []


def _choices(magic: Any, action: argparse.Action | None) -> list[str]:
    """Return the values that an argument may take: a fixed list, or what its command knows."""
    if action is None:
        return []
    if action.choices:
        return [str(choice) for choice in action.choices]
    owner = getattr(magic, "__self__", None)
    return owner.known_values(action.dest) if isinstance(owner, CommandMagics) else []


def _from_token(found: list[str], word: str, token: str) -> list[str]:
    """Cut what IPython does not count to the word at the cursor, such as ``--dtype=``."""
    extra = len(word) - len(token)
    if extra > 0 and re.search(r"[^\w-]", word[:extra]):
        return [one[extra:] for one in found]
    return found
