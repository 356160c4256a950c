"""Derive the options of a magic from the parameters of a function, and convert parsed values."""

from __future__ import annotations

import argparse
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import Any

from IPython.core.magic_arguments import MagicArgumentParser, MagicHelpFormatter
from traitlets import TraitType

from hpu_magic.commands import declaration
from hpu_magic.commands.parameters import Variable, Words
from hpu_magic.errors import HPUError
from hpu_magic.magics.settings import Configured, HPUMagics


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
        Parameters whose values are taken from the cell.
    line_only
        Positional parameters that only the line magic has.
    flags
        Additional flags that are not parameters of the function: a mapping from names to help
        texts.
    output
        Help text of ``-o NAME``; empty if the command returns nothing.
    statement
        Help text of the rest of the line, if it is code.
    epilog
        Text that the help shows below the options.
    """

    def declare(magic: Any) -> Any:
        cell = inspect.signature(magic).parameters.get("cell")
        marks = ("%",) if cell is None else ("%%",) if cell.default is cell.empty else ("%", "%%")
        declared = Declaration(function, magic.__name__, leave_out, line_only)
        texts = {"description": magic.__doc__, "epilog": epilog or None}
        parser = MagicArgumentParser(magic.__name__, formatter_class=_formatter(marks), **texts)
        declared.add_to(parser)
        for name, help in flags.items():
            parser.add_argument(f"--{name}", action="store_true", help=help)
        if output and "output" not in declared.names:
            parser.add_argument("-o", "--output", metavar="NAME", help=output)
        if statement:
            parser.add_argument("statement", nargs="...", help=statement)
        magic.declaration = declared
        magic.parser = parser
        magic.__doc__ = parser.format_help()
        return magic

    return declare


def _formatter(marks: tuple[str, ...]) -> Any:
    """Return a help formatter that shows the usage of the line magic and the cell magic."""

    class Formatter(MagicHelpFormatter):
        def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
            for number, mark in enumerate(marks):
                start = "::\n\n" if number == 0 else ""
                super().add_usage(usage, actions, groups, prefix=f"{start}  {mark}")

    return Formatter


class Declaration(declaration.CommandDeclaration):
    """The parameters of a function as arguments of a magic, with configurable defaults."""

    def __init__(
        self,
        function: Callable[..., Any],
        magic: str,
        leave_out: Collection[str] = (),
        line_only: Collection[str] = (),
    ) -> None:
        default = partial(_configured, magic.removeprefix("hpu_"))
        super().__init__(function, leave_out, line_only, default)

    def arguments(
        self, options: argparse.Namespace, find: Callable[[str], Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Convert parsed options to the arguments of the function.

        ``find`` returns the value of a variable, given its name.
        """
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self.parameters:
            value = _read(parameter.reading, getattr(options, parameter.name), find)
            if parameter.is_option:
                named[parameter.name] = value
            elif parameter.is_list:
                positional += value
            else:
                positional.append(value)
        return positional, named


@cache
def _traits() -> dict[str, TraitType[Any, Any]]:
    return HPUMagics.class_traits(config=True)


def _configured(command: str, name: str, default: Any) -> Any:
    """Return the trait that configures a parameter's default, or the default if there is none."""
    traits = _traits()
    for trait in (f"{command}_{name}", name):
        if trait in traits and traits[trait].default_value == default:
            return Configured(trait)
    return default


def _read(reading: Variable | Words | None, value: Any, find: Callable[[str], Any]) -> Any:
    """Convert a word from the line to the value of a parameter."""
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
    if reading.or_text or reading.or_path:
        return _variable_or_text(value, find, periods=reading.or_path)
    if not reading.several or len(words) == 1:
        return find(value.strip(", "))
    return tuple(find(word) for word in words)


def split_list(value: str | list[str]) -> list[str]:
    """Split a comma-separated list into its words."""
    text = value if isinstance(value, str) else ",".join(value)
    return [word.strip() for word in text.split(",") if word.strip()]


def _variable_or_text(word: str, find: Callable[[str], Any], *, periods: bool) -> Any:
    from IPython.core.error import UsageError

    try:
        return find(word)
    except UsageError:
        if "." in word and not periods:
            raise
        return word
