"""Reference pages for commands, from their parsers: one per magic, and one for `hpu-magic`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from hpu_magic import command_line
from hpu_magic.magics import _FAMILIES
from hpu_magic.magics.settings import Configured, HPUMagics
from website.text import code, fenced, from_docstring, table

_DEFAULT = re.compile(r" \(([^()]* by default|default: [^()]*)\)$")
_HEAD = """\
# Commands and their options

The commands are available after `%load_ext hpu_magic`. `%command?` shows the text of its page.
`%command` applies to one line, and `%%command` to the cell below it. Tab completes options and
suitable variables.

"""
_SETTINGS = """\
## Settings

You can change the defaults of options, for a session with `%config HPUMagics.time_runs = 10`, or
permanently with `c.HPUMagics.time_runs = 10` in `~/.ipython/profile_default/ipython_config.py`.
`%config HPUMagics` lists all settings and their values. An option of a command overrides the
setting.

"""
_TERMINAL = """\
# hpu-magic in a terminal

`hpu-magic COMMAND --help` shows the text of a section.

"""


@dataclass(frozen=True)
class Command:
    """A magic with its name, forms and parser."""

    name: str
    forms: tuple[str, ...]
    parser: argparse.ArgumentParser

    @property
    def shown(self) -> str:
        """The forms of the magic, such as ``%name, %%name``."""
        return ", ".join(f"{mark}{self.name}" for mark in self.forms)

    @property
    def summary(self) -> str:
        """The first paragraph of the magic's description."""
        return " ".join((self.parser.description or "").strip().partition("\n\n")[0].split())


def magics() -> list[Command]:
    """Return all magics in the order in which they are loaded."""
    commands: dict[str, Command] = {}
    for module, name in _FAMILIES:
        family = getattr(import_module(f"hpu_magic.magics.{module}"), name)
        for kind, mark in (("line", "%"), ("cell", "%%")):
            for magic, method in family.magics[kind].items():
                forms = commands[magic].forms if magic in commands else ()
                commands[magic] = Command(magic, (*forms, mark), getattr(family, method).parser)
    return list(commands.values())


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a parser, except its help option."""
    return [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]


def invocation(action: argparse.Action) -> str:
    """Return an option with its value, as users type it."""
    return argparse.HelpFormatter("")._format_action_invocation(action)


def write(into: Path) -> None:
    """Write the pages: ``magics/*.md`` and ``terminal.md``."""
    folder = into / "magics"
    folder.mkdir(parents=True)
    commands = magics()
    for command in commands:
        (folder / f"{command.name}.md").write_text(_page(command))
    rows = [
        (f"[{code(command.shown)}]({command.name}.md)", from_docstring(command.summary))
        for command in commands
    ]
    names = "\n".join(command.name for command in commands)
    contents = "```{toctree}\n:hidden:\n\n" + names + "\n```\n"
    (folder / "index.md").write_text(
        _HEAD + table(("command", ""), rows) + "\n" + _SETTINGS + _settings() + "\n" + contents
    )
    (into / "terminal.md").write_text(_terminal())


def _page(command: Command) -> str:
    parser = command.parser
    usages = [_usage(parser, f"{mark}{command.name}") for mark in command.forms]
    parts = [f"# {from_docstring(command.shown)}", fenced("text", "\n".join(usages))]
    parts.append(from_docstring(parser.description or "", "python"))
    parts.append(_arguments(parser))
    return "\n\n".join(filter(None, parts)) + "\n"


def _terminal() -> str:
    parser = command_line.parser()
    parts = [_TERMINAL.strip(), fenced("text", _usage(parser, parser.prog))]
    for name, sub in subcommands(parser).items():
        parts += [f"## hpu-magic {name}", fenced("text", _usage(sub, sub.prog))]
        parts += [from_docstring(sub.description or ""), _arguments(sub), _examples(sub)]
    return "\n\n".join(filter(None, parts)) + "\n"


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a command's subcommands, by name."""
    [action] = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(action.choices)


def _usage(parser: argparse.ArgumentParser, shown: str) -> str:
    formatter = argparse.HelpFormatter(shown, width=88)
    formatter.add_usage(None, options(parser), parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help().strip()


def _arguments(parser: argparse.ArgumentParser) -> str:
    return "\n\n".join(
        ", ".join(map(code, _typed(action))) + "\n: " + _about(parser, action)
        for action in options(parser)
    )


def _about(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help of an option without mentioning its default twice."""
    about = from_docstring(argparse.HelpFormatter(parser.prog)._expand_help(action))
    default = _default(parser, action)
    return (_DEFAULT.sub("", about) if "default: " in default else about) + default


def _typed(action: argparse.Action) -> Iterator[str]:
    """Yield each name of an option, with its value."""
    if not action.option_strings:
        yield invocation(action)
        return
    value = action.metavar or action.dest.upper()
    after = argparse.HelpFormatter("")._format_args(action, value) if action.nargs != 0 else ""
    for name in action.option_strings:
        yield f"{name} {after}".strip()


def _default(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    default = parser.get_default(action.dest)
    if isinstance(default, Configured):
        value = _value(default.value(HPUMagics()))
        return f" ({f'default: {value}, ' if value else ''}a [setting](index.md#settings))"
    stated = "default" in (action.help or "")
    if stated or default in (None, False, "", argparse.SUPPRESS) or default == []:
        return ""
    return f" (default: {_value(default)})"


def _value(value: object) -> str:
    return "" if value is None or value == "" else code(str(value))


def _settings() -> str:
    traits = HPUMagics.class_own_traits(config=True)
    rows = [
        (code(name), _value(trait.default_value), from_docstring(trait.help))
        for name, trait in sorted(traits.items())
    ]
    return table(("setting", "default", "option"), rows)


def _examples(parser: argparse.ArgumentParser) -> str:
    before, mark, examples = (parser.epilog or "").partition("Examples: ")
    if not mark:
        return from_docstring(before)
    return "\n\n".join(
        filter(
            None, [from_docstring(before.strip()), fenced("sh", "\n".join(examples.split("; ")))]
        )
    )
