"""Derive the arguments of a command from the signature and docstring of its function.

Keyword-only parameters become options, as do parameters that accept several variables, such as
``inputs``. Other parameters become positional arguments. ``Literal`` types list the choices, and
the types in `hpu_magic.commands.parameters` denote names of variables. The help text is the first
sentence of the parameter's description.
"""

from __future__ import annotations

import argparse
import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hpu_magic.commands.parameters import Variable, Words
from hpu_magic.errors import choice

_PARAMETER = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$")
_SENTENCE_END = re.compile(r"\.(?=\s|$)")
_SHORT = {"runs": "-n", "repeats": "-r", "output": "-o"}
_METAVARS = {
    name: metavar
    for metavar, names in {
        "N": "runs repeats cards nodes steps warmup max_graphs accumulate batch batches prompt "
        "new_tokens bucket apply number",
        "NAME": "delete output optimizer profile",
        "SECONDS": "interval history grace",
        "a,b": "lower fp32 allow block",
        "x,y": "inputs push",
        "0,2": "ranks",
        "DIR": "dir",
        "FILE": "config deepspeed",
        "HOW": "parallel",
        "FUNCTION": "loss",
        "graphs,peak": "show",
        "FILE:LINE=NUMBER": "value",
    }.items()
    for name in names.split()
}
"""Placeholders for values in help texts and error messages."""


class CommandDeclaration:
    """The parameters of a function, converted to arguments of a parser.

    Parameters
    ----------
    leave_out
        Names of parameters that do not become arguments.
    line_only
        Names of positional parameters that may be omitted.
    default
        Function that returns the default of an argument, given the parameter's name and default.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        leave_out: Collection[str] = (),
        line_only: Collection[str] = (),
        default: Callable[[str, Any], Any] = lambda name, value: value,
    ) -> None:
        self.function: Any = function
        texts = _descriptions(function)
        # Return types are imported only for type checkers, so evaluate each annotation separately.
        self.parameters = [
            _Parameter(
                parameter,
                eval(parameter.annotation, self.function.__globals__),
                texts[parameter.name],
                default,
                optional=parameter.name in line_only,
            )
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
            and parameter.name not in leave_out
        ]

    @property
    def names(self) -> list[str]:
        """Names of the parameters."""
        return [parameter.name for parameter in self.parameters]

    def add_to(
        self,
        parser: Any,
        *,
        texts: Mapping[str, str] = types.MappingProxyType({}),
        skip: Collection[str] = (),
        only_passed: bool = False,
    ) -> None:
        """Add an argument for each parameter to a parser or a group.

        Parameters
        ----------
        texts
            Help texts that replace the descriptions.
        skip
            Names of parameters to omit.
        only_passed
            Make all options optional, and omit those that were not passed from the result.
        """
        for parameter in self.parameters:
            if parameter.name not in skip:
                help_text = texts.get(parameter.name, parameter.help)
                parameter.add_to(parser, help_text, only_passed=only_passed)


class _Parameter:
    """A parameter, converted to an argument of a parser."""

    def __init__(
        self,
        parameter: inspect.Parameter,
        hint: Any,
        text: str,
        default: Callable[[str, Any], Any],
        *,
        optional: bool,
    ) -> None:
        self.name = parameter.name
        self._type, self.reading = _taken_apart(hint)
        several = isinstance(self.reading, Variable) and self.reading.several
        self.is_list = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        self.is_option = parameter.kind is inspect.Parameter.KEYWORD_ONLY or (
            several and not self.is_list
        )
        missing = parameter.default is inspect.Parameter.empty
        self._required = missing and not optional
        self._default = default(self.name, None if missing else parameter.default)
        shown = self.is_option and isinstance(parameter.default, str | int | float)
        self.help = text
        if shown and self._type is not bool and f"{parameter.default}":
            self.help += f" ({parameter.default} by default)"

    def add_to(self, parser: Any, help_text: str, *, only_passed: bool) -> None:
        spellings = [self.name]
        if self.is_option:
            letter = [_SHORT[self.name]] if self.name in _SHORT else []
            spellings = [*letter, f"--{self.name.replace('_', '-')}"]
        declared = self._declared()
        if only_passed and self.is_option:
            declared |= {"default": argparse.SUPPRESS}
            declared.pop("required", None)
        argument = parser.add_argument(*spellings, help=help_text, **declared)
        argument.reading = self.reading

    def _declared(self) -> dict[str, Any]:
        if self._type is bool:
            if self._default is False:
                return {"action": "store_true"}
            return {"action": argparse.BooleanOptionalAction, "default": self._default}
        metavar = _METAVARS.get(self.name, self.name.upper().replace("_", "-"))
        value: dict[str, Any] = {"metavar": metavar}
        if get_origin(self._type) is Literal:
            choices = [*get_args(self._type)]
            # argparse includes the name of the type in its error messages.
            value = {"choices": choices, "type": lambda text: choice(text, choices) or text}
        elif self._type in (int, float):
            value["type"] = self._type
        elif self._type == int | Literal["largest"]:
            value["type"] = size_or_largest
        if isinstance(self.reading, Words) and self.reading.repeats:
            value["action"] = "append"
        if self.is_option:
            return {"default": self._default, "required": self._required, **value}
        if self.is_list:
            return {"nargs": "+", **value}
        return value if self._required else {"nargs": "?", "default": self._default, **value}


def size_or_largest(text: str) -> int | str:
    """Convert the text of ``--batch``."""
    return text if text == "largest" else int(text)


def _taken_apart(hint: Any) -> tuple[Any, Variable | Words | None]:
    """Return an annotation's type without None, and the way in which a magic reads the value."""
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


def _descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Return the first sentence of each parameter's description in a function's docstring."""
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
    """Return the first sentence of a text, formatted as the help of an option."""
    sentence = _SENTENCE_END.split(text)[0].replace("``", "").replace("%", "%%")
    is_name = sentence[:2].isupper() and not sentence.startswith("A ")
    return sentence if is_name else sentence[:1].lower() + sentence[1:]
