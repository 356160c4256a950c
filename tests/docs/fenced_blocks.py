"""The fenced code blocks of a page, in order, with what comments before them say to tests.

``<!-- not run: REASON -->`` before a block keeps it from being run or checked, ``<!-- listed -->``
has the magics in it parsed and not called, ``<!-- run -->`` has commands of a terminal run, and
``<!-- raises: ERROR -->`` says that a cell ends with that error. Anywhere on a page,
``<!-- environment: NAME=VALUE ... -->`` is what its process starts with.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
_DIRECTIVE = re.compile(r"\{([\w:-]+)\}\s*(.*)")
_OPTIONS = re.compile(r"\A(?::[\w-]+:.*\n)+\n?")


@dataclass(frozen=True)
class Block:
    """A block of code; `line` is that of its fence, `comment` what stands right before it."""

    page: str
    line: int
    language: str
    code: str
    comment: str

    @property
    def reason(self) -> str:
        """Why it is not run; empty where it is."""
        return self.comment.partition("not run: ")[2]

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return the pages of the site and those at the top of the project."""
    found = [PROJECT / name for name in ("README.md", "CONTRIBUTING.md")]
    found += sorted((PROJECT / "docs").rglob("*.md"))
    return [path.relative_to(PROJECT).as_posix() for path in found if path.exists()]


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page."""
    return list(_blocks(page, (PROJECT / page).read_text(), 0))


def environment_of(page: str) -> dict[str, str]:
    """Return what the process of a page starts with."""
    said = re.findall(r"<!-- environment: (.*?) -->", (PROJECT / page).read_text())
    return dict(setting.split("=", 1) for line in said for setting in line.split())


def _blocks(page: str, text: str, before: int) -> Iterator[Block]:
    lines = text.splitlines()
    number, prose = 0, 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            number += 1
            continue
        closing = re.compile(rf" *{opened['fence'][0]}{{{len(opened['fence'])},}} *$")
        end = number + 1
        while end < len(lines) and not closing.match(lines[end]):
            end += 1
        inside = textwrap.dedent("\n".join(lines[number + 1 : end])) + "\n"
        info = opened["info"].strip()
        directive = _DIRECTIVE.fullmatch(info)
        if directive is None or directive[1] in ("code-block", "code"):
            language = directive[2] if directive else info.split(" ")[0]
            code = _OPTIONS.sub("", inside) if directive else inside
            comment = _comment("\n".join(lines[prose:number]))
            yield Block(page, before + number + 1, language, code, comment)
        else:  # a directive, which may hold blocks of its own
            yield from _blocks(page, inside, before + number + 1)
        number = prose = end + 1


def _comment(prose: str) -> str:
    """Return the comment at the end of what stands before a block."""
    comments = list(_COMMENT.finditer(prose))
    return comments[-1][1] if comments and not prose[comments[-1].end() :].strip() else ""
