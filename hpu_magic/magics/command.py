"""What every command shares: parsing its line, finding the user's objects, saying no."""

from __future__ import annotations

import argparse
import keyword
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic import Magics, magics_class
from IPython.utils.process import arg_split

from hpu_magic.errors import HPUError, suggestion
from hpu_magic.magics.settings import Configured, HPUMagics

Result = TypeVar("Result")


@magics_class
class CommandMagics(Magics):
    """Base of the magics classes; `settings` holds the defaults of the options."""

    shell: Any
    comma_separated: frozenset[str] = frozenset()
    """Arguments that take several values with commas between."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell)
        self.settings = settings

    def parse(self, magic: Callable[..., Any], line: str, *, cell: bool = False) -> Any:
        """Parse `line` by the options declared on `magic`.

        Raises
        ------
        UsageError
            Whatever is wrong with the line, in one sentence that says what to type instead.
        """
        parser = magic.parser  # type: ignore[attr-defined]
        shown = ("%%" if cell else "%") + parser.prog
        try:
            words = arg_split(line, posix=True)
        except ValueError:
            raise UsageError(f"{shown}: a quotation mark in {line!r} is not closed.") from None
        try:
            options = parser.parse_args(words)
        except UsageError as error:
            raise UsageError(_explained(shown, parser, str(error))) from None
        for name, value in vars(options).items():
            if isinstance(value, Configured):
                setattr(options, name, value.value(self.settings))
        return options

    def run(self, magic: Callable[..., Any], line: str) -> Any:
        """Call the function of a command with the options of its line; return the result."""
        options = self.parse(magic, line)
        self.check_name(getattr(options, "output", None))
        declaration = magic.declaration  # type: ignore[attr-defined]
        arguments, named = declaration.arguments(options, self.find)
        result = self.call(declaration.function, *arguments, **named)
        return self.keep(getattr(options, "output", None), result)

    @property
    def namespace(self) -> dict[str, Any]:
        """The user's variables."""
        return self.shell.user_ns

    def cells(self) -> list[str]:
        """Return the source of the cells run so far; the list's index is their number."""
        return list(self.namespace.get("In", ()))

    def find(self, name: str) -> Any:
        """Return what `name` (dots allowed) means in the user's namespace.

        Raises
        ------
        UsageError
            There is no such name; close ones are suggested.
        """
        first, *attributes = name.split(".")
        namespace = self.namespace
        if first not in namespace:
            visible = [known for known in namespace if not known.startswith("_")]
            mend = suggestion(first, visible) or "define it first, or give another name."
            raise UsageError(f"There is no variable {first!r}: {mend}")
        found = namespace[first]
        path = first
        for attribute in attributes:
            try:
                found = getattr(found, attribute)
            except AttributeError:
                mend = suggestion(attribute, dir(found)) or f"type {path}.<Tab> to see what it has."
                raise UsageError(f"{path!r} has no attribute {attribute!r}: {mend}") from None
            path = f"{path}.{attribute}"
        return found

    def bind(self, name: str, value: Any) -> None:
        """Make `name` (dots allowed) mean `value` in the user's namespace."""
        *owner, last = name.split(".")
        if owner:
            setattr(self.find(".".join(owner)), last, value)
        else:
            self.namespace[last] = value

    def check_name(self, name: str | None) -> None:
        """Refuse a name that cannot be a variable.

        Raises
        ------
        UsageError
            `name` is not an identifier.
        """
        if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
            raise UsageError(f"{name!r} cannot be a variable: give a name such as report.")

    def keep(self, name: str | None, report: Result) -> Result:
        """Return `report`, bound to `name` as well if there is one."""
        if name is not None:
            self.check_name(name)
            self.namespace[name] = report
        return report

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return what Tab offers for an argument that is neither a variable nor a fixed choice.

        Parameters
        ----------
        argument : str
            Its name, as the parser stores it.
        word : str
            What is typed of it already.
        """
        return []

    def fits(self, argument: str, position: int, value: Any) -> bool:
        """Tell whether a variable is of the kind that an argument names.

        Parameters
        ----------
        argument : str
            Its name, as the parser stores it.
        position : int
            How many were named for it before.
        value : object
            The variable's value.
        """
        return False

    def follows(self, argument: str, words: Sequence[str]) -> bool:
        """Tell whether an argument without an option's name may come after these words.

        Parameters
        ----------
        argument : str
            Its name, as the parser stores it.
        words : sequence of str
            The complete words before it.
        """
        return True

    def close(self) -> None:
        """Undo what outlives a command, when the extension is unloaded."""

    @staticmethod
    def call(function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Call `function`; a refusal of the runtime becomes a sentence without a traceback."""
        try:
            return function(*arguments, **options)
        except HPUError as refused:
            raise UsageError(str(refused)) from None


def _explained(shown: str, parser: argparse.ArgumentParser, message: str) -> str:
    """Turn argparse's message into one sentence with the mend."""
    prefix = "unrecognized arguments: "
    if message.startswith(prefix):
        word = message[len(prefix) :].split()[0] if message[len(prefix) :].split() else "''"
        if word.startswith("-"):
            options = [name for name in parser._option_string_actions if name.startswith("--")]
            if not options:
                return f"{shown} takes no options: leave {word!r} out."
            listed = ", ".join(sorted(options))
            mend = suggestion(word.split("=")[0], options) or f"its options are {listed}."
            return f"{shown} has no option {word!r}: {mend}"
        return f"{shown} does not take {word!r}: type {shown}? for what it takes."
    return f"{shown}: {message}; type {shown}? for help."
