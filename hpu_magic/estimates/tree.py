"""Render a tree of modules whose nodes can be expanded without JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hpu_magic import units
from hpu_magic.estimates.by_module import ModuleShare, merged

_MARK = "1.2em"
"""Width of the triangle that expands a module."""
_ROW = f"display:inline-flex;width:calc(100% - {_MARK});vertical-align:top"
_WIDTHS = ("6em", "5em", "7em", "6em")
_SMALLEST = 0.002
"""Modules with smaller shares of both time and memory are counted but not shown."""


def tree_html(model: ModuleShare) -> str:
    """Return the module tree as HTML with expandable nodes; numbered layers are merged."""
    model = merged(model)
    head = _line("module", ("time", "", "memory", "limit"))
    return (
        '<details style="margin-top:6px"><summary style="cursor:pointer">By module (estimate)'
        f'</summary><div style="font-size:90%;max-width:760px"><div style="opacity:.75">{head}'
        f"</div>{_node(model, model, 0)}</div></details>"
    )


def _node(module: ModuleShare, model: ModuleShare, depth: int) -> str:
    texts = (
        units.duration(module.seconds),
        f"{100 * module.seconds / model.seconds:.1f} %" if model.seconds else "",
        units.size(module.bytes) if module.bytes else "",
        module.limit,
    )
    kind = f' <span style="opacity:.65">{escape(module.kind)}</span>' if module.kind else ""
    name = f"{escape(module.name or 'the model')}{kind}"
    if not module.parts:
        return f"<div>{_line(name, texts, depth)}</div>"
    shown = [
        part
        for part in module.parts.values()
        if part.seconds >= _SMALLEST * model.seconds or part.bytes >= _SMALLEST * model.bytes
    ]
    inner = "".join(_node(part, model, depth + 1) for part in shown)
    if left := len(module.parts) - len(shown):
        inner += (
            f'<div style="padding-left:{depth + 1}em;opacity:.75">{left} more below 0.2 %</div>'
        )
    opened = " open" if depth == 0 else ""
    summary = _line(name, texts, depth, opens=True)
    return f'<details{opened}><summary style="cursor:pointer">{summary}</summary>{inner}</details>'


def _line(name: str, texts: Sequence[str], depth: int = 0, *, opens: bool = False) -> str:
    """Return a row of the tree; rows that cannot be expanded are indented for alignment."""
    cells = "".join(
        f'<span style="width:{width};text-align:right">{escape(text)}</span>'
        for text, width in zip(texts, _WIDTHS, strict=True)
    )
    margin = "" if opens else f";margin-left:{_MARK}"
    first = f'<span style="flex:1;padding-left:{depth}em">{name}</span>'
    return f'<span style="{_ROW}{margin}">{first}{cells}</span>'
