"""The options of a magic, from the signature and the docstring of its function.

A keyword-only parameter is an option, and so is a parameter that takes several variables, such as
``inputs``; other parameters are words in their order. ``Literal`` lists the choices,
`hpu_magic.commands.parameters` has the types for names of variables. The help text is the first
sentence of the parameter's description.
"""

from __future__ import annotations

import argparse
import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from IPython.core.magic_arguments import MagicArgumentParser, MagicHelpFormatter

from hpu_magic.commands.parameters import Variable, Words
from hpu_magic.errors import HPUError, choice
from hpu_magic.magics.settings import Configured, HPUMagics

_PARAMETER = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$")
_SENTENCE_END = re.compile(r"\.(?=\s|$)")
_SHORT = {"runs": "-n", "repeats": "-r", "output": "-o"}
_METAVARS = {
    name: metavar
    for metavar, names in {
        "N": "runs repeats cards warmup max_graphs accumulate batch batches prompt new_tokens "
        "bucket apply number",
        "NAME": "delete output optimizer profile",
        "SECONDS": "interval history grace",
        "a,b": "lower fp32 allow block",
        "x,y": "inputs push",
        "0,2": "ranks",
        "DIR": "dir",
        "FILE": "config",
        "HOW": "parallel",
        "FUNCTION": "loss",
        "graphs,peak": "show",
    }.items()
    for name in names.split()
}
"""Placeholders of values in help and errors."""


def options_of(
    function: Callable[..., Any],
    *,
    leave_out: Collection[str] = (),
    line_only: Collection[str] = (),
    flags: Mapping[str, str] = types.MappingProxyType({}),
    output: str = "assign the result to this variable",
    statement: str = "",
    epilog: str = "",
) -> Callable[[Any], Any]:
    """Declare the parameters of a function as the options of a magic.

    Parameters
    ----------
    function
        The function of the command.
    leave_out
        Parameters that the cell stands for.
    line_only
        Positional parameters that only the line form has.
    flags
        Help texts of options without a value that only the magic has, by their names.
    output
        Help text of ``-o NAME``; empty if the command returns nothing.
    statement
        If the rest of the line is code, its help text.
    epilog
        Text below the options in the help.
    """

    def declare(magic: Any) -> Any:
        cell = inspect.signature(magic).parameters.get("cell")
        marks = ("%",) if cell is None else ("%%",) if cell.default is cell.empty else ("%", "%%")
        declaration = Declaration(function, magic.__name__, leave_out, line_only)
        parser = _Parser(magic.__name__, marks, description=magic.__doc__, epilog=epilog or None)
        declaration.add_to(parser)
        for name, help in flags.items():
            parser.add_argument(f"--{name}", action="store_true", help=help)
        if output and "output" not in declaration.names:
            parser.add_argument("-o", "--output", metavar="NAME", help=output)
        if statement:
            parser.add_argument("statement", nargs="...", help=statement)
        magic.declaration = declaration
        magic.parser = parser
        magic.__doc__ = parser.format_help()
        return magic

    return declare


class _Parser(MagicArgumentParser):
    """A parser whose help shows each form of the magic, ``%`` and ``%%``."""

    def __init__(self, prog: str, marks: tuple[str, ...], **texts: Any) -> None:
        super().__init__(prog, formatter_class=_formatter(marks), **texts)


def _formatter(marks: tuple[str, ...]) -> Any:
    class Formatter(MagicHelpFormatter):
        def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
            for number, mark in enumerate(marks):
                start = "::\n\n" if number == 0 else ""
                super().add_usage(usage, actions, groups, prefix=f"{start}  {mark}")

    return Formatter


class Declaration:
    """The parameters of a function, as the arguments of a magic."""

    def __init__(
        self,
        function: Any,
        magic: str,
        leave_out: Collection[str] = (),
        line_only: Collection[str] = (),
    ) -> None:
        self.function = function
        # Type checkers alone import the types of results, so each annotation is evaluated alone.
        self._parameters = [
            _Parameter(
                one,
                eval(one.annotation, function.__globals__),
                magic.removeprefix("hpu_"),
                optional=one.name in line_only,
            )
            for one in inspect.signature(function).parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD and one.name not in leave_out
        ]

    @property
    def names(self) -> list[str]:
        """Names of the parameters."""
        return [one.name for one in self._parameters]

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add an argument for each parameter."""
        described = _descriptions(self.function)
        for one in self._parameters:
            one.add_to(parser, described[one.name])

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

    def __init__(
        self, parameter: inspect.Parameter, hint: Any, command: str, *, optional: bool
    ) -> None:
        self.name = parameter.name
        self._type, self.reading = _taken_apart(hint)
        several = isinstance(self.reading, Variable) and self.reading.several
        self.is_list = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        self.is_option = parameter.kind is inspect.Parameter.KEYWORD_ONLY or (
            several and not self.is_list
        )
        self._required = parameter.default is inspect.Parameter.empty and not optional
        self._optional = optional
        shown = self.is_option and isinstance(parameter.default, str | int | float)
        self._shown_default = f"{parameter.default}" if shown and self._type is not bool else ""
        default = None if parameter.default is inspect.Parameter.empty else parameter.default
        self._default: Any = _configured(f"{command}_{self.name}", self.name, default)

    def add_to(self, parser: argparse.ArgumentParser, help: str) -> None:
        spellings = [self.name]
        if self.is_option:
            letter = [_SHORT[self.name]] if self.name in _SHORT else []
            spellings = [*letter, f"--{self.name.replace('_', '-')}"]
        if self._shown_default:
            help = f"{help} ({self._shown_default} by default)"
        argument = parser.add_argument(*spellings, help=help, **self._declared())
        argument.reading = self.reading  # type: ignore[attr-defined]

    def _declared(self) -> dict[str, Any]:
        if self._type is bool:
            if self._default is False:
                return {"action": "store_true"}
            return {"action": argparse.BooleanOptionalAction, "default": self._default}
        metavar = _METAVARS.get(self.name, self.name.upper().replace("_", "-"))
        value: dict[str, Any] = {"metavar": metavar}
        if get_origin(self._type) is Literal:
            choices = [*get_args(self._type)]
            # Types of argparse are named in its messages.
            value = {"choices": choices, "type": lambda text: choice(text, choices) or text}
        elif self._type in (int, float):
            value["type"] = self._type
        elif self._type == int | Literal["largest"]:
            value["type"] = size_or_largest
        if self.is_option:
            return {"default": self._default, "required": self._required, **value}
        if self.is_list:
            return {"nargs": "+", **value}
        return value if self._required else {"nargs": "?", "default": self._default, **value}


def size_or_largest(text: str) -> int | str:
    """Convert the text of ``--batch``."""
    return text if text == "largest" else int(text)


def _configured(of_command: str, of_all: str, default: Any) -> Any:
    """Return the trait that holds the default of a parameter, else the default itself."""
    traits = HPUMagics.class_traits(config=True)
    for name in (of_command, of_all):
        if name in traits and traits[name].default_value == default:
            return Configured(name)
    return default


def _taken_apart(hint: Any) -> tuple[Any, Variable | Words | None]:
    """Return the type of a value other than None, and how a magic reads it."""
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        reading = next((note for note in notes if isinstance(note, Variable | Words)), None)
        return _taken_apart(hint)[0], reading
    if get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        if len(parts) == 1:
            return _taken_apart(parts[0])
        return (int | Literal["largest"] if int in parts else hint), None
    return hint, None


def _read(reading: Variable | Words | None, value: Any, find: Callable[[str], Any]) -> Any:
    """Return the value of a parameter for a word of the line."""
    if value is None or reading is None or not isinstance(value, str | list):
        return value
    words = split_list(value)
    if isinstance(reading, Words):
        try:
            return [reading.type(word) for word in words]
        except ValueError:
            raise HPUError(f"{value!r} is not a list of numbers: write 0,2, for example.") from None
    if isinstance(value, list):
        return [find(word) for word in words]
    if reading.or_text:
        return _variable_or_text(value, find)
    if not reading.several or len(words) == 1:
        return find(value.strip(", "))
    return tuple(find(word) for word in words)


def split_list(value: str | list[str]) -> list[str]:
    """Return the words of a list, which commas separate."""
    text = value if isinstance(value, str) else ",".join(value)
    return [word.strip() for word in text.split(",") if word.strip()]


def _variable_or_text(word: str, find: Callable[[str], Any]) -> Any:
    from IPython.core.error import UsageError

    try:
        return find(word)
    except UsageError:
        if "." in word:
            raise
        return word


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
