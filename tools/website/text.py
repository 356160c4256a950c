"""Convert docstrings, code and tables to Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence

_QUOTED = re.compile(r"(`+)(.+?)\1", re.DOTALL)
# Names of options, which docstrings do not quote, and characters with a special meaning in
# Markdown.
_OPTION = re.compile(r"((?<![\w-])--[a-z][\w-]*)")
_MARKED = re.compile(r"([*_<\[\]|$\\])")


def code(text: str) -> str:
    """Return text as inline code."""
    marks = "``" if "`" in text else "`"
    return f"{marks}{text}{marks}"


def fenced(language: str, text: str) -> str:
    """Return text as a code block."""
    return f"```{language}\n{text.rstrip()}\n```"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a Markdown table."""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    # A vertical bar would end the cell, even in code.
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def from_docstring(text: str, language: str = "") -> str:
    """Return a docstring's prose as Markdown, and its indented examples as code blocks."""
    parts = []
    literal = False
    for kind, block in _blocks(inspect.cleandoc(text)):
        if kind == "indented" and literal:
            parts.append(fenced(language, textwrap.dedent(block)))
            continue
        literal = block.endswith("::")
        parts.append(_prose(block.removesuffix("::") + ":" if literal else block))
    return "\n\n".join(parts)


def _blocks(text: str) -> Iterable[tuple[str, str]]:
    """Yield paragraphs, joining adjacent indented ones."""
    indented: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith((" ", "\t")):
            indented.append(paragraph)
            continue
        if indented:
            yield "indented", "\n\n".join(indented)
            indented = []
        yield "prose", paragraph
    if indented:
        yield "indented", "\n\n".join(indented)


def _prose(text: str) -> str:
    shown, end = [], 0
    for quoted in _QUOTED.finditer(text):
        shown += [_escaped(text[end : quoted.start()]), code(quoted[2])]
        end = quoted.end()
    return "".join([*shown, _escaped(text[end:])])


def _escaped(text: str) -> str:
    # Options become code, so that Sphinx does not convert their hyphens to dashes.
    pieces = _OPTION.split(text)
    pieces[::2] = [_MARKED.sub(r"\\\1", piece) for piece in pieces[::2]]
    pieces[1::2] = map(code, pieces[1::2])
    return "".join(pieces)
