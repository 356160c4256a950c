"""Reports with more than two columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.plain_text import printable
from hpu_magic.runtime.present.report import LINES, Report, plain

_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0"
_WIDEST = 60


class Table(Report):
    """A titled table with named columns, and the notes of a `Report` below it."""

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        raise NotImplementedError

    def lines(self) -> Sequence[Sequence[str]]:
        """Return the rows of the table, one text per column."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and the lines of the table as dicts by column."""
        columns = list(self.columns())
        lines = [dict(zip(columns, line, strict=True)) for line in self.lines()]
        return {**super().to_dict(), "table": lines}

    def to_frame(self) -> Any:
        """Return the table as a `pandas.DataFrame` of strings; raise `HPUError` without pandas."""
        try:
            import pandas
        except ImportError:
            raise HPUError("to_frame needs pandas: run pip install pandas.") from None
        return pandas.DataFrame([list(line) for line in self.lines()], columns=list(self.columns()))

    def __repr__(self) -> str:
        lines = [list(line) for line in self.lines()]
        shown = [self.title()]
        if lines:
            everything = [list(self.columns()), *lines]
            widths = [
                min(_WIDEST, max(len(line[column]) for line in everything))
                for column in range(len(everything[0]))
            ]
            for line in everything:
                fields = (f"{text:<{width}}" for text, width in zip(line, widths, strict=True))
                shown.append(f"  {'  '.join(fields)}".rstrip())
        shown += [f"  {note}" for note in self.notes()]
        shown += [f"  Warning: {warning}" for warning in self.warnings()]
        return printable("\n".join(shown), keep=LINES)

    def _repr_html_(self) -> str:
        return f"<div><b>{plain(self.title())}</b></div>{self.html_body()}"

    def html_body(self) -> str:
        """Return table and notes as HTML, without the headline."""
        lines = list(self.lines())
        parts = []
        if lines:
            head = "".join(
                f'<th style="{_CELL};font-weight:normal;opacity:.75">{plain(name)}</th>'
                for name in self.columns()
            )
            body = "".join(
                "<tr>"
                + "".join(f'<td style="{_CELL}">{plain(text)}</td>' for text in line)
                + "</tr>"
                for line in lines
            )
            parts.append(f"<table><tr>{head}</tr>{body}</table>")
        parts += [f"<div>{plain(note)}</div>" for note in self.notes()]
        parts += [f"<div><b>Warning:</b> {plain(warning)}</div>" for warning in self.warnings()]
        return "".join(parts)
