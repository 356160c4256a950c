"""Base class of the magics.

A magic parses its line, looks up variables, calls the command's function and assigns the result.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic import Magics, magics_class
from IPython.utils.process import arg_split

from hpu_magic.errors import HPUError, suggestion
from hpu_magic.magics.command_line import without_comment
from hpu_magic.magics.declared import split_list
from hpu_magic.magics.settings import Configured, HPUMagics
from hpu_magic.magics.wrong_lines import explained

Result = TypeVar("Result")


@magics_class
class CommandMagics(Magics):
    """Base class of the magics; `settings` contains the defaults of the options."""

    shell: Any

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell)
        self.settings = settings

    def parse(
        self, magic: Callable[..., Any], line: str, *, cell: bool = False, rest: bool = False
    ) -> Any:
        """Parse the options in a line according to the declaration of `magic`.

        If `rest` is true, unknown options are allowed and returned as the attribute ``rest``.

        Raises
        ------
        UsageError
            The line is invalid; the message shows a valid line to type instead.
        """
        parser = magic.parser  # type: ignore[attr-defined]
        marks = "%%" if cell else "%"
        try:
            words = arg_split(without_comment(line), posix=True)
        except ValueError:
            raise UsageError(
                f"{marks}{parser.prog}: a quotation mark in {line!r} is not closed."
            ) from None
        try:
            if rest:
                options, unknown = parser.parse_known_args(words)
                options.rest = unknown
            else:
                options = parser.parse_args(words)
        except UsageError as error:
            text = explained(parser, marks, words, str(error), self.namespace)
            raise UsageError(text) from None
        for name, value in vars(options).items():
            if isinstance(value, Configured):
                setattr(options, name, value.value(self.settings))
        for name in self._assigned(parser, options):
            self.check_name(name)
        return options

    @staticmethod
    def _assigned(parser: Any, options: Any) -> list[str]:
        """Return the names of the variables that ``--output`` assigns."""
        output = getattr(options, "output", None)
        if output is None:
            return []
        action = next(action for action in parser._actions if action.dest == "output")
        return split_list(output) if hasattr(action, "reading") else [output]

    def run(self, magic: Callable[..., Any], line: str) -> Any:
        """Call a command's function with the options in a line, and return the result."""
        options = self.parse(magic, line)
        result = self.call_declared(magic, options)
        return self.keep(options.output, result)

    def call_declared(self, magic: Callable[..., Any], options: Any, **others: Any) -> Any:
        """Call a command's function with parsed options and other keyword arguments."""
        declaration = magic.declaration  # type: ignore[attr-defined]
        arguments, named = self.call(declaration.arguments, options, self.find)
        return self.call(declaration.function, *arguments, **named, **others)

    @property
    def namespace(self) -> dict[str, Any]:
        """The user's variables."""
        return self.shell.user_ns

    def find(self, name: str) -> Any:
        """Return the value of a variable or, if the name contains dots, of an attribute.

        Raises
        ------
        UsageError
            The variable does not exist; the message suggests similar names.
        """
        first, *attributes = name.split(".")
        namespace = self.namespace
        if first not in namespace:
            visible = [known for known in namespace if not known.startswith("_")]
            fix = suggestion(first, visible) or "define it first, or use another name."
            raise UsageError(f"Unknown variable {first!r}: {fix}")
        value = namespace[first]
        path = first
        for attribute in attributes:
            try:
                value = getattr(value, attribute)
            except AttributeError:
                fix = suggestion(attribute, dir(value)) or f"press Tab after {path}. for a list."
                raise UsageError(f"{path!r} has no attribute {attribute!r}: {fix}") from None
            path = f"{path}.{attribute}"
        return value

    def bind(self, name: str, value: Any) -> None:
        """Assign a value to a variable or, if the name contains dots, to an attribute."""
        *owner, last = name.split(".")
        if owner:
            setattr(self.find(".".join(owner)), last, value)
        else:
            self.namespace[last] = value

    def check_name(self, name: str) -> None:
        """Raise UsageError if a name is not a valid variable name."""
        if not name.isidentifier() or keyword.iskeyword(name):
            raise UsageError(f"{name!r} cannot be a variable: use a name such as report.")

    def keep(self, name: str | None, report: Result) -> Result:
        """Assign the report to a variable if a name is passed, and return the report."""
        if name is not None:
            self.namespace[name] = report
        return report

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return completions for an argument that is neither a variable nor a declared choice.

        `word` is the part that the user has already typed.
        """
        return []

    def follows(self, argument: str, words: Sequence[str]) -> bool:
        """Return whether a positional argument may follow these complete words."""
        return True

    def close(self) -> None:
        """Undo the magic's changes to the session; called when the extension is unloaded."""

    @staticmethod
    def call(function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Call `function`; turn an `HPUError` into an error that is shown without a traceback."""
        try:
            return function(*arguments, **options)
        except HPUError as refused:
            if hasattr(refused, "_render_traceback_"):  # the error renders itself
                raise
            raise UsageError(str(refused)) from None
