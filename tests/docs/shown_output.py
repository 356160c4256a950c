"""Comparison of the output on a page with the real output of its code."""

import re

import pytest
from fenced_blocks import Block

_NUMBER = r"\d+(?:\.\d+)?"
_SPEED = r"(?= ?(?:s|runs|[a-z]+/s)\b)"
"""The text after a number that differs between runs."""


def assert_shows(shown: Block, text: str) -> None:
    """Compare words exactly, and numbers except times within 5 %; ``...`` matches any text."""
    actual = _plain(text)
    expected = re.fullmatch(_pattern(_plain(shown.code)), actual, re.DOTALL)
    assert expected, f"{shown.place} shows another text:\n{text}"
    numbers = list(re.finditer(_NUMBER, _plain(shown.code)))
    speeds = {match.start() for match in re.finditer(_NUMBER + _SPEED, _plain(shown.code))}
    for number, there in zip(numbers, expected.groups(), strict=True):
        if number.start() not in speeds:
            close = pytest.approx(float(number[0]), rel=0.05)
            assert float(there) == close, f"{shown.place} shows another number:\n{text}"


def _plain(text: str) -> str:
    lines = "\n".join(" ".join(line.split()) for line in text.strip().splitlines())
    lines = re.sub(r"(?<=\d),(?=\d{3}\b)", "", lines)  # thousands separators
    return re.sub(r"(?<=\d )(?:ns|µs|ms|min)\b", "s", lines)  # the unit depends on the machine


def _pattern(expected: str) -> str:
    """Return a regular expression for a text, with a group for each number."""
    parts = re.split(rf"(^\.\.\.\n|\.\.\.|{_NUMBER})", expected, flags=re.MULTILINE)
    wild = {"...\n": r"(?:.*\n)?", "...": ".*?"}
    return "".join(
        wild.get(part) or (f"({_NUMBER})" if re.fullmatch(_NUMBER, part) else re.escape(part))
        for part in parts
    )
