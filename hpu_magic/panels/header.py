"""The header of a panel, above its charts."""

from __future__ import annotations

from html import escape

from hpu_magic.panels import palette

_HEADER = """<div style="line-height:1.5;padding:2px 0;font-variant-numeric:tabular-nums">
<div style="color:var(--jp-ui-font-color1,inherit)">{headline}</div>
<div style="color:var(--jp-ui-font-color2,{grey});font-size:12px">{detail}</div>
<div style="color:var(--jp-ui-font-color1,inherit);font-size:12px">{values}</div>
<div style="height:3px;margin-top:5px;border-radius:2px;background:rgba(128,128,128,.22);
overflow:hidden">{bar}</div>
</div>"""
_BAR = '<div style="height:3px;border-radius:2px;width:{percent:.1f}%;background:{color}"></div>'
# The negative delay keeps the animation smooth although each update replaces the element.
_ENDLESS_BAR = """<style>
@keyframes hpu-endless {{ from {{ margin-left: 0 }} to {{ margin-left: 80% }} }}
@media (prefers-reduced-motion: reduce) {{ .hpu-endless {{ animation: none !important }} }}</style>
<div class="hpu-endless" style="height:3px;border-radius:2px;width:20%;background:{color};
animation:hpu-endless 2s ease-in-out {delay:.2f}s infinite alternate"></div>"""


def header(
    headline: str,
    detail: str,
    share: float | None,
    warning: str = "",
    *,
    values: str = "",
    endless_for: float | None = None,
) -> str:
    """Return the header as HTML.

    ``headline`` is HTML; all other arguments are text. ``detail`` is the line below the headline,
    preceded by ``warning``, and ``values`` is a line of metric values. ``share``, from 0 to 1, is
    the length of the progress bar. If a task without a known end has been running for
    ``endless_for`` seconds, the bar moves back and forth.
    """
    if warning:
        color = f"var(--jp-error-color1,{palette.NOT_FINITE})"
        warning = f'<b style="color:{color}">{escape(warning)}</b>, '
    percent = 100 * min(max(share or 0.0, 0.0), 1.0)
    bar = _BAR.format(percent=percent, color=palette.TRAIN)
    if endless_for is not None:
        bar = _ENDLESS_BAR.format(delay=-(endless_for % 4), color=palette.TRAIN)
    return _HEADER.format(
        headline=headline,
        detail=warning + escape(detail),
        values=escape(values),
        bar=bar,
        grey=palette.TEXT,
    )
