"""Split a command line, up to the cursor, into complete words and the word being typed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# `%hpu_to ...`, `report = %hpu_time ...`, `%%hpu_capture ...`, or, with automagic, `hpu_to ...`.
_COMMAND = re.compile(r"^\s*(?:[\w.,\s\[\]'\"]+=\s*(?=%))?(?P<mark>%{0,2})(?P<name>\w+)\s")
# After these operators, a line without % is a Python statement.
_OPERATOR = re.compile(r"\s*(=|[!<>*/+@&|^%-]+=|[,.(\[:])")


def command_at(shell: Any, line: str, cursor: int) -> tuple[Any, str, bool] | None:
    """Return a line's magic, the text from its name to the cursor, and whether it is a cell magic.

    Return None if the line does not contain a command before the cursor.
    """
    found = _COMMAND.match(line[:cursor])
    if found is None:
        return None
    name, mark = found["name"], found["mark"]
    rest = line[:cursor][found.end() :]
    if not mark and (
        not shell.automagic or name in shell.user_ns or _OPERATOR.match(line[found.end() - 1 :])
    ):
        return None
    cell = mark == "%%"
    magic = shell.find_cell_magic(name) if cell else shell.find_line_magic(name)
    return None if magic is None else (magic, rest, cell)


def without_comment(line: str) -> str:
    """Return the part of a line before a ``#`` that begins a word outside of quotation marks."""
    quote, before = "", " "
    for place, character in enumerate(line):
        if before == "\\" and quote != "'":
            character = "escaped"
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and before.isspace():
            return line[:place]
        before = character
    return line


def split(text: str) -> tuple[list[str], str]:
    """Split arguments like a shell into complete words and the last word, which is incomplete.

    The last word may contain an unclosed quotation mark.
    """
    words: list[str] = []
    word, begun, quote = "", False, ""
    for character in text:
        if quote:
            if character == quote:
                quote = ""
            else:
                word += character
        elif character in "'\"":
            quote, begun = character, True
        elif character.isspace():
            if begun:
                words.append(word)
            word, begun = "", False
        else:
            word, begun = word + character, True
    return words, word


@dataclass
class Call:
    """The arguments of a command, without the word that the user is typing."""

    present: list[argparse.Action] = field(default_factory=list)  # options that are on the line
    awaiting: argparse.Action | None = None  # the option whose value is expected next
    positional: argparse.Action | None = None  # the next positional argument
    values: list[str] = field(default_factory=list)  # values of `positional` so far
    words: list[str] = field(default_factory=list)  # words of all positional arguments so far
    verbatim: bool = False  # whether the rest of the line is the user's code


def option(parser: argparse.ArgumentParser, name: str) -> argparse.Action | None:
    """Return the option with this name, which may be abbreviated."""
    options = parser._option_string_actions
    if name in options:
        return options[name]
    matches = {action for full, action in options.items() if full.startswith(name)}
    return matches.pop() if name.startswith("--") and len(matches) == 1 else None


def understood(parser: argparse.ArgumentParser, words: Sequence[str]) -> Call:
    """Assign complete words to the arguments that a command declares."""
    call = Call()
    waiting = [action for action in parser._actions if not action.option_strings]
    only_positional = False
    for word in words:
        if call.awaiting is not None:
            call.awaiting = None
        elif word == "--" and not only_positional:
            only_positional = True
        elif word.startswith("-") and len(word) > 1 and not only_positional:
            action = option(parser, word.partition("=")[0])
            if action is not None:
                call.present.append(action)
                call.awaiting = None if "=" in word or action.nargs == 0 else action
        elif waiting and waiting[0].nargs == argparse.REMAINDER:
            call.verbatim = True
            return call
        elif waiting:
            call.words.append(word)
            call.values.append(word)
            if waiting[0].nargs in (None, argparse.OPTIONAL):
                waiting.pop(0)
                call.values.clear()
    call.positional = waiting[0] if waiting else None
    return call
