"""Tab completion of options, their values, and variables of suitable types.

IPython's other matchers would add all Python names and files, so they are suppressed in commands
even if nothing matches.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from hpu_magic.commands.parameters import Variable, Words
from hpu_magic.magics import kinds
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.command_line import (
    Call,
    command_at,
    option,
    split,
    understood,
    without_comment,
)

_IDENTIFIER = "hpu_magic"
_PROMISING = re.compile(r"Module|Tensor|Parameter|Optimizer|Loader")


class _Fitting(list[SimpleCompletion]):
    """A list of completions whose length is never 0, so that IPython suppresses other matchers."""

    def __len__(self) -> int:
        return max(1, super().__len__())


def enable(shell: Any) -> None:
    """Add the completions to `shell`."""

    @context_matcher(priority=1000, identifier=_IDENTIFIER)
    def hpu_magic_matcher(context: CompletionContext) -> Any:
        completed = _complete(shell, context)
        if completed is None:
            return {"completions": [], "suppress": False}
        word, fitting = completed
        return {
            "completions": _Fitting(SimpleCompletion(text, type="param") for text in fitting),
            "suppress": True,
            "ordered": True,
            "matched_fragment": word,
        }

    disable(shell)
    shell.Completer.custom_matchers.append(hpu_magic_matcher)


def disable(shell: Any) -> None:
    """Remove the completions."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [one for one in matchers if getattr(one, "matcher_identifier", "") != _IDENTIFIER]


def _complete(shell: Any, context: CompletionContext) -> tuple[str, list[str]] | None:
    """Return the text to complete and its completions, or None if IPython should complete it."""
    lines = context.full_text.split("\n")
    line = lines[context.cursor_line] if context.cursor_line < len(lines) else lines[-1]
    called = command_at(shell, line, context.cursor_position)
    if called is None:
        return None
    magic, text, cell = called
    parser = getattr(magic, "parser", None)
    owner = getattr(magic, "__self__", None)
    if parser is None or not isinstance(owner, CommandMagics):
        return None
    words, word = split(text)
    call = understood(parser, words)
    if cell and shell.find_line_magic(parser.prog) is not None and not _is_switch(call.positional):
        call.positional = None  # only the line magic has positional arguments
    if call.positional is not None and not owner.follows(call.positional.dest, words):
        call.positional = None
    if call.verbatim or _begins_code(call, word):
        return None
    if without_comment(text) != text:
        return "", []  # the cursor is in a comment
    later = understood(parser, split(line[context.cursor_position :])[0]).present
    word, fitting = _fitting(shell, owner, parser, call, later, word)
    # Words that contain quotation marks are not completed.
    return (word, fitting) if text.endswith(word) else ("", [])


def _is_switch(action: argparse.Action | None) -> bool:
    return action is not None and action.dest == "switch"


def _begins_code(call: Call, word: str) -> bool:
    code = call.positional is not None and call.positional.nargs == argparse.REMAINDER
    return code and call.awaiting is None and not word.startswith("-")


def _fitting(
    shell: Any,
    owner: CommandMagics,
    parser: argparse.ArgumentParser,
    call: Call,
    later: list[argparse.Action],
    word: str,
) -> tuple[str, list[str]]:
    """Return the part of the word that is completed, and its completions."""
    if call.awaiting is not None:
        return _values(shell, owner, call.awaiting, [], word)
    name, equals, value = word.partition("=")
    if equals and name.startswith("--"):
        action = option(parser, name)
        if action is None or action.nargs == 0:
            return value, []
        return _values(shell, owner, action, [], value)
    options = [
        spelling
        for action in parser._actions
        if action not in call.present and action not in later
        for spelling in action.option_strings
        if spelling.startswith("--" if word != "-" else "-")
    ]
    if word.startswith("-"):
        return word, sorted(name for name in options if name.startswith(word))
    if call.positional is not None:
        word, fitting = _values(shell, owner, call.positional, call.values, word)
        if fitting or word:
            return word, fitting
    return word, [] if word else sorted(options)


def _values(
    shell: Any, owner: CommandMagics, action: argparse.Action, before: list[str], word: str
) -> tuple[str, list[str]]:
    """Return the part of an argument's value to complete, and the matching values."""
    reading = getattr(action, "reading", None)
    several = isinstance(reading, Words) or getattr(reading, "several", False)
    if several or action.nargs == "+":
        *earlier, word = word.split(",")
        before = [*before, *earlier]
    if action.choices:
        known = [str(choice) for choice in action.choices]
    else:
        known = owner.known_values(action.dest, word)
    names: Iterable[str] = ()
    if isinstance(reading, Variable):
        names = _variables(shell, getattr(kinds, reading.kind), word)
    elif isinstance(reading, Words) and action.dest == "push":
        names = _variables(shell, lambda value: not isinstance(value, ModuleType), word)
    return word, sorted({name for name in [*known, *names] if name.startswith(word)} - {*before})


def _variables(shell: Any, fits: Any, word: str) -> Iterator[str]:
    """Yield the names of suitable variables or, after a dot, of suitable attributes."""
    owner, dot, _ = word.rpartition(".")
    if not dot:
        hidden = shell.user_ns_hidden
        for name, value in list(shell.user_ns.items()):
            if name not in hidden and name[0] != "_" and fits(value):
                yield name
        return
    first, *attributes = owner.split(".")
    value = shell.user_ns.get(first)
    for attribute in attributes:
        value = dict(_attributes(value)).get(attribute)
    for name, held in _attributes(value):
        if fits(held):
            yield f"{owner}.{name}"


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, including properties whose annotated types may match."""
    held = dict(getattr(value, "__dict__", {}))
    for registry in ("_modules", "_parameters", "_buffers"):
        entries = held.get(registry)
        held.update(entries if isinstance(entries, dict) else {})
    for name, promised in _properties(type(value)).items():
        if name not in held and _PROMISING.search(promised):
            with suppress(Exception):  # properties can raise any exception
                held[name] = getattr(value, name)
    yield from ((name, value) for name, value in held.items() if not name.startswith("_"))


def _properties(owner: type) -> dict[str, str]:
    """Return the type annotations of a class's properties."""
    attributes: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        attributes |= vars(base)
    return {
        name: str(getattr(value.fget, "__annotations__", {}).get("return", ""))
        for name, value in attributes.items()
        if isinstance(value, property)
    }
