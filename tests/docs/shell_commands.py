"""Checks terminal commands without running them."""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

from fenced_blocks import PROJECT
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=.*", re.DOTALL)
_PREFIXES = ("HPU_MAGIC_", "PT_", "HABANA_", "GPU_MIGRATION_", "HLS_")
# Programs whose arguments are not checked.
_OTHERS = {"cd", "git", "cat", "grep", "curl", "ln", "mkdir", "rm", "ssh", "source", "."}
# Distributions that the pages install, but that the project does not require.
_NOT_REQUIRED = {"hpu_magic_engine", "hpu-magic-engine", "optimum-habana"}
PROJECT_TABLE = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]


def problems_of(code: str) -> list[str]:
    """Return a sentence for each command with an unknown program, option, target or variable."""
    commands = ((shlex.join(command), _problem(command)) for command in _commands(code))
    return [f"{command}: {problem}" for command, problem in commands if problem]


def _commands(code: str) -> Iterator[list[str]]:
    """Split a block into commands and their words; console lines without ``$`` are output."""
    lines = code.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command: list[str] = []
        for word in words:
            if word in (">", ">>", "<"):
                next(words)  # a file
            elif set(word) <= set("();<>|&"):
                yield command
                command = []
            else:
                command.append(word)
        yield command


def _problem(command: list[str]) -> str:
    while command and (set_here := _ASSIGNMENT.fullmatch(command[0])):
        name = set_here[1]
        if name.startswith(_PREFIXES) and name not in _known_variables():
            return f"nothing reads {name}"
        command = command[1:]
    if not command:
        return ""
    program, arguments = command[0], command[1:]
    if program in ("python", "python3"):
        return _python(arguments)
    checks = {"make": _make, "hpu-magic": _hpu_magic, "pip": _pip}
    checks |= {"export": _problem, "sudo": _problem}
    if program in checks:
        return checks[program](arguments)
    scripts = importlib.metadata.entry_points(group="console_scripts")
    known = program in _OTHERS or program in scripts.names or shutil.which(program)
    return "" if known else f"there is no program {program}"


def _known_variables() -> set[str]:
    """Return the names of all environment variables in the package and in `tests/conftest.py`."""
    files = [PROJECT / "tests" / "conftest.py"]
    for pattern in ("*.py", "*.tsv", "*.pth", "*.cpp"):
        files += (PROJECT / "hpu_magic").rglob(pattern)
    named = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
    return {name for path in files for name in named.findall(path.read_text())}


def _make(arguments: list[str]) -> str:
    targets = re.findall(
        r"^([\w-]+(?: [\w-]+)*):", (PROJECT / "Makefile").read_text(), re.MULTILINE
    )
    known = {name for line in targets for name in line.split()}
    unknown = [
        argument
        for argument in arguments
        if not _ASSIGNMENT.fullmatch(argument) and argument not in known
    ]
    return f"the Makefile has no {', '.join(unknown)}" if unknown else ""


def _hpu_magic(arguments: list[str]) -> str:
    from hpu_magic import command_line

    class Parsed(Exception):
        pass

    parse = argparse.ArgumentParser.parse_args

    def parse_alone(parser: Any, *words: Any, **options: Any) -> Any:
        parse(parser, *words, **options)
        raise Parsed

    errors = io.StringIO()
    replaced = mock.patch.object(argparse.ArgumentParser, "parse_args", parse_alone)
    with replaced, contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            command_line.main(arguments)
        except Parsed:
            return ""
        except SystemExit as end:
            return errors.getvalue() if end.code else ""
    return "its arguments are not parsed"


def _python(arguments: list[str]) -> str:
    if arguments[:2] == ["-m", "pip"]:
        return _pip(arguments[2:])
    if arguments[:1] == ["-m"] and arguments[1] != "venv":
        return "" if importlib.util.find_spec(arguments[1]) else f"no module {arguments[1]}"
    return ""


def _pip(arguments: list[str]) -> str:
    with_value = {"-c", "-r", "-e", "--index-url", "--extra-index-url", "--find-links", "-f"}
    options = iter(arguments[1:])
    for option in options:
        if option in with_value:
            next(options)
        elif not option.startswith("-") and (problem := _requirement(option)):
            return problem
    return ""


def _requirement(text: str) -> str:
    if text.endswith(".whl"):
        return ""
    wanted = Requirement(text)
    if wanted.name.replace("-", "_") == PROJECT_TABLE["name"]:
        missing = wanted.extras - set(PROJECT_TABLE["optional-dependencies"])
        return f"there is no extra {', '.join(sorted(missing))}" if missing else ""
    return "" if wanted.name in _known_distributions() else f"{wanted.name} is required nowhere"


def _known_distributions() -> set[str]:
    lists = [PROJECT_TABLE["dependencies"], *PROJECT_TABLE["optional-dependencies"].values()]
    files = [path.read_text().splitlines() for path in PROJECT.glob("requirements-*.txt")]
    lines = [line.partition("#")[0].strip() for some in (*lists, *files) for line in some]
    named = {Requirement(line).name for line in lines if line and not line.startswith("-")}
    return named | _NOT_REQUIRED
