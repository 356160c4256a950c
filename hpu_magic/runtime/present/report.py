"""Results that read the same in a terminal, in a notebook and on a page without a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hpu_magic.plain_text import printable

Row = tuple[str, str]

LINES = "\n\t"
"""What stays of the characters that cannot be printed."""

_CELL = "text-align:left;padding:1px 12px 1px 0"


def plain(text: str) -> str:
    """Return HTML that shows a text as it is."""
    return escape(printable(text, keep=LINES))


class Report:
    """A titled two-column table with notes; subclasses say what is in it.

    `rows` holds (label, value) pairs, `notes` whole sentences. Warnings are notes that are set
    off from the rest.
    """

    def title(self) -> str:
        """Return the headline; on the simulator it says "simulated"."""
        raise NotImplementedError

    def rows(self) -> Sequence[Row]:
        """Return (label, value) pairs."""
        return ()

    def notes(self) -> Sequence[str]:
        """Return sentences that explain the figures."""
        return ()

    def warnings(self) -> Sequence[str]:
        """Return sentences about something the user should change."""
        return ()

    def __repr__(self) -> str:
        rows = list(self.rows())
        width = max((len(label) for label, _ in rows), default=0)
        lines = [self.title()]
        lines += [f"  {label:<{width}}  {value}".rstrip() for label, value in rows]
        lines += [f"  {note}" for note in self.notes()]
        lines += [f"  Warning: {warning}" for warning in self.warnings()]
        return printable("\n".join(lines), keep=LINES)

    def _repr_html_(self) -> str:
        parts = [f"<div><b>{plain(self.title())}</b></div>"]
        rows = list(self.rows())
        if rows:
            body = "".join(
                f'<tr><th style="{_CELL};font-weight:normal;opacity:.75">{plain(label)}</th>'
                f'<td style="{_CELL}">{plain(value)}</td></tr>'
                for label, value in rows
            )
            parts.append(f"<table>{body}</table>")
        parts += [f"<div>{plain(note)}</div>" for note in self.notes()]
        parts += [f"<div><b>Warning:</b> {plain(warning)}</div>" for warning in self.warnings()]
        return "".join(parts)
