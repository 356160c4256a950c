"""Reports with more than two columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.runtime.present.report import CELL, HEAD, Report, plain

_WIDEST = 60


class Table(Report):
    """A titled table with named columns, followed by the notes of a `Report`."""

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        raise NotImplementedError

    def lines(self) -> Sequence[Sequence[str]]:
        """Return the rows of the table, with one string per column."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and the rows of the table as dicts keyed by column."""
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

    def text_body(self) -> list[str]:
        """Return the rows of the table as aligned lines."""
        lines = list(self.lines())
        if not lines:
            return []
        lines.insert(0, self.columns())
        widths = [
            min(_WIDEST, max(len(line[column]) for line in lines))
            for column in range(len(lines[0]))
        ]
        return [
            "  ".join(
                ["", *(f"{text:<{w}}" for text, w in zip(line, widths, strict=True))]
            ).rstrip()
            for line in lines
        ]

    def html_table(self) -> str:
        """Return the table as HTML, or an empty string if there are no rows."""
        rows = [
            [f'<td style="{CELL}">{plain(text)}</td>' for text in line] for line in self.lines()
        ]
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
        head = "".join(f'<th style="{HEAD}">{plain(name)}</th>' for name in self.columns())
        return f"<table><tr>{head}</tr>{body}</table>" if body else ""
