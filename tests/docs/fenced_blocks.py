"""The fenced code blocks of a page, in order, with the comments that precede them.

CONTRIBUTING.md lists the comments. ``<!-- environment: NAME=VALUE ... -->`` anywhere on a page sets
environment variables of its process.
"""

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
    """A block of code; `line` is the line of its fence, `comment` the comment right before it."""

    page: str
    line: int
    language: str
    code: str
    comment: str

    @property
    def reason(self) -> str:
        """The reason not to run the block, or an empty string."""
        return self.comment.partition("not run: ")[2]

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return the pages of the site, README.md and CONTRIBUTING.md."""
    paths = [PROJECT / name for name in ("README.md", "CONTRIBUTING.md")]
    paths += sorted((PROJECT / "docs").rglob("*.md"))
    return [path.relative_to(PROJECT).as_posix() for path in paths if path.exists()]


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page."""
    return list(_blocks(page, (PROJECT / page).read_text(), 0))


def environment_of(page: str) -> dict[str, str]:
    """Return the environment variables of a page's process."""
    comments = re.findall(r"<!-- environment: (.*?) -->", (PROJECT / page).read_text())
    return dict(setting.split("=", 1) for comment in comments for setting in comment.split())


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
        else:  # a directive that may contain blocks
            yield from _blocks(page, inside, before + number + 1)
        number = prose = end + 1


def _comment(prose: str) -> str:
    """Return the comment at the end of the text before a block."""
    comments = list(_COMMENT.finditer(prose))
    return comments[-1][1] if comments and not prose[comments[-1].end() :].strip() else ""
