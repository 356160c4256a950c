"""A complete HTML page with the result of a dry run, in the light or dark colors of the browser."""

from __future__ import annotations

from hpu_magic.runtime.present.report import plain

_STYLE = """
:root { color-scheme: light dark; }
body {
  font-family: system-ui, sans-serif; max-width: 60em; margin: 1em auto; padding: 0 1em;
  overflow-wrap: break-word;
  background: light-dark(#ffffff, #15181c); color: light-dark(#1c2024, #e2e5e9);
}
table { margin-top: 6px; }
th { white-space: pre-wrap; }
th + td { overflow-wrap: anywhere; }
svg { fill: light-dark(#5b6168, #a7aeb6); }
svg text[fill] { fill: light-dark(#9c5200, #f0a45a); }
"""


def page(title: str, body: str) -> str:
    """Return a page with this title, which is plain text, and this body, which is HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{plain(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )
