"""The options of a magic, from the signature and the docstring of its function.

A keyword-only parameter is an option, any other parameter a word in its place. ``Literal`` lists
the choices, `hpu_magic.commands.parameters` has the types for names of variables. The help text is
the first sentence of the parameter's description.
"""

from __future__ import annotations

import argparse
import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from IPython.core.magic_arguments import MagicArgumentParser

from hpu_magic.commands.parameters import Variable, Words
from hpu_magic.magics.settings import Configured, HPUMagics

_PARAMETER = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$")
_SENTENCE_END = re.compile(r"\.(?=\s|$)")


def options_of(
    function: Callable[..., Any],
    *,
    short: Mapping[str, str] = types.MappingProxyType({}),
    leave_out: Collection[str] = (),
    output: bool = False,
    statement: str = "",
) -> Callable[[Any], Any]:
    """Declare the parameters of a function as the options of a magic.

    Parameters
    ----------
    function
        The function of the command.
    short
        Options of one letter by the name of the parameter.
    leave_out
        Parameters that the cell stands for.
    output
        Add ``-o NAME``, which assigns the result of a cell to a variable.
    statement
        If the rest of the line is code, its help text.
    """

    def declare(magic: Any) -> Any:
        declaration = Declaration(function, magic.__name__, short, leave_out)
        parser = MagicArgumentParser(magic.__name__, description=magic.__doc__)
        declaration.add_to(parser)
        if output:
            parser.add_argument(
                "-o", "--output", metavar="NAME", help="assign the result to this variable"
            )
        if statement:
            parser.add_argument("statement", nargs="...", help=statement)
        magic.declaration = declaration
        magic.parser = parser
        magic.__doc__ = parser.format_help()
        return magic

    return declare


class Declaration:
    """The parameters of a function, as the arguments of a magic."""

    def __init__(
        self,
        function: Any,
        magic: str,
        short: Mapping[str, str],
        leave_out: Collection[str],
    ) -> None:
        self.function = function
        self._short = short
        # The types of results are imported by type checkers only, so each is evaluated by itself.
        self._parameters = [
            _Parameter(one, eval(one.annotation, function.__globals__), magic.removeprefix("hpu_"))
            for one in inspect.signature(function).parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD and one.name not in leave_out
        ]

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add an argument for each parameter."""
        described = _descriptions(self.function)
        for one in self._parameters:
            letter = [f"-{self._short[one.name]}"] if one.name in self._short else []
            one.add_to(parser, letter, described[one.name])

    def arguments(
        self, options: argparse.Namespace, find: Callable[[str], Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the function for parsed options.

        Parameters
        ----------
        options
            The parsed options.
        find
            Returns the value of a variable by its name.
        """
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for one in self._parameters:
            value = _read(one.reading, getattr(options, one.name), find)
            if one.is_option:
                named[one.name] = value
            elif one.is_list:
                positional += value
            else:
                positional.append(value)
        return positional, named


class _Parameter:
    """One parameter as an argument of a parser."""

    def __init__(self, parameter: inspect.Parameter, hint: Any, command: str) -> None:
        self.name = parameter.name
        self.is_option = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        self.is_list = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        self._required = parameter.default is inspect.Parameter.empty
        self._type, self.reading = _taken_apart(hint)
        shown = self.is_option and isinstance(parameter.default, str | int | float)
        self._shown_default = f"{parameter.default}" if shown and self._type is not bool else ""
        self._default: Any = parameter.default
        for trait in (f"{command}_{self.name}", self.name):
            if trait in HPUMagics.class_trait_names(config=True):
                self._default = Configured(trait)
                break

    def add_to(self, parser: argparse.ArgumentParser, letter: list[str], help: str) -> None:
        spellings = [*letter, f"--{self.name.replace('_', '-')}"] if self.is_option else [self.name]
        if self._shown_default:
            help = f"{help} ({self._shown_default} by default)"
        argument = parser.add_argument(*spellings, help=help, **self._declared())
        argument.reading = self.reading  # type: ignore[attr-defined]

    def _declared(self) -> dict[str, Any]:
        if self._type is bool:
            if self._default is False:
                return {"action": "store_true"}
            return {"action": argparse.BooleanOptionalAction, "default": self._default}
        value: dict[str, Any] = {"metavar": self.name.upper().replace("_", "-")}
        if get_origin(self._type) is Literal:
            value = {"choices": [*get_args(self._type)]}
        elif self._type in (int, float):
            value["type"] = self._type
        if self.is_option:
            return {"default": self._default, **value}
        if self.is_list:
            return {"nargs": "+", **value}
        return value if self._required else {"nargs": "?", "default": self._default, **value}


def _taken_apart(hint: Any) -> tuple[Any, Variable | Words | None]:
    """Return the type of a value other than None, and how a magic reads it."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        return _taken_apart(parts[0]) if len(parts) == 1 else (hint, None)
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        return hint, next((note for note in notes if isinstance(note, Variable | Words)), None)
    return hint, None


def _read(reading: Variable | Words | None, value: Any, find: Callable[[str], Any]) -> Any:
    """Return the value of a parameter for a word of the line."""
    if value is None or reading is None or not isinstance(value, str | list):
        return value
    if isinstance(value, list):
        return [_read(reading, word, find) for word in value]
    words = [word.strip() for word in value.split(",") if word.strip()]
    if isinstance(reading, Words):
        return words
    if not reading.several:
        return find(value)
    return tuple(find(word) for word in words)


def _descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Return the first sentence about each parameter in the docstring of a function."""
    text = inspect.getdoc(function) or ""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in text.partition("Parameters\n----------\n")[2].splitlines():
        if not line.strip():
            break
        if heading := _PARAMETER.match(line):
            names = [name.strip(" *") for name in heading["names"].split(",")]
            found.update((name, []) for name in names)
        else:
            for name in names:
                found[name].append(line.strip())
    return {name: _first_sentence(" ".join(lines)) for name, lines in found.items()}


def _first_sentence(text: str) -> str:
    """Return the text up to its first full stop, written as an option's help."""
    sentence = _SENTENCE_END.split(text)[0].replace("``", "").replace("%", "%%")
    return sentence if sentence[:2].isupper() else sentence[:1].lower() + sentence[1:]
