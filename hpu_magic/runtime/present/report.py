"""Results with typed fields that can be shown as text in a terminal or as HTML in a notebook."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from hpu_magic.plain_text import printable

Row = tuple[str, str]

LINES = "\n\t"
"""The control characters that are kept in reports."""

_WIDEST = 48  # characters of a label that moves the values of the other rows

CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0"
HEAD = f"{CELL};font-weight:normal;opacity:.75"


def plain(text: str) -> str:
    """Return HTML that displays text unchanged."""
    return escape(printable(text, keep=LINES))


def plain_value(value: Any) -> Any:
    """Convert a value to numbers, strings, lists and dicts; unknown objects become class names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {_key(key): plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        ordered = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [plain_value(each) for each in ordered]
    if isinstance(value, Report):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    return type(value).__name__


def _key(key: Any) -> str:
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        key = dataclasses.astuple(key)
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _fields(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value)]
    else:
        names = list(vars(value))
    return {name: plain_value(getattr(value, name)) for name in names if name[0] != "_"}


class Report:
    """A titled table of labels and values, with notes and warnings; values are also attributes."""

    def title(self) -> str:
        """Return the headline, which says "simulated" on the simulator."""
        raise NotImplementedError

    def rows(self) -> Sequence[Row]:
        """Return (label, value) pairs."""
        return ()

    def notes(self) -> Sequence[str]:
        """Return sentences that explain the values."""
        return ()

    def warnings(self) -> Sequence[str]:
        """Return sentences about problems that the user should fix."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as numbers, strings, lists and dicts that can be serialized as JSON."""
        return _fields(self)

    def __repr__(self) -> str:
        lines = [self.title(), *self.text_body(), *(f"  {note}" for note in self.notes())]
        lines += [f"  Warning: {warning}" for warning in self.warnings()]
        return printable("\n".join(lines), keep=LINES)

    def _repr_html_(self) -> str:
        return f"<div><b>{plain(self.title())}</b></div>{self.html_body()}"

    def text_body(self) -> list[str]:
        """Return the lines between the headline and the notes."""
        rows = list(self.rows())
        lengths = (len(label) for label, _ in rows)
        width = max((each for each in lengths if each <= _WIDEST), default=0)
        return [f"  {label:<{width}}  {value}".rstrip() for label, value in rows]

    def html_body(self) -> str:
        """Return the table and notes as HTML, without the headline."""
        parts = [self.html_table(), *(f"<div>{plain(note)}</div>" for note in self.notes())]
        parts += [f"<div><b>Warning:</b> {plain(warning)}</div>" for warning in self.warnings()]
        return "".join(parts)

    def html_table(self) -> str:
        """Return the table as HTML, or an empty string if there are no rows."""
        body = "".join(
            f'<tr><th style="{HEAD}">{plain(label)}</th><td style="{CELL}">{plain(value)}</td></tr>'
            for label, value in self.rows()
        )
        return f"<table>{body}</table>" if body else ""
