"""What stands above the charts of a panel."""

from __future__ import annotations

from html import escape

from hpu_magic.panels import palette

__all__ = ["header"]

_HEADER = """<div style="line-height:1.5;padding:2px 0;font-variant-numeric:tabular-nums">
<div style="color:var(--jp-ui-font-color1,inherit)">{headline}</div>
<div style="color:var(--jp-ui-font-color2,{grey});font-size:12px">{detail}</div>
<div style="height:3px;margin-top:5px;border-radius:2px;background:rgba(128,128,128,.22)">
<div style="height:3px;border-radius:2px;width:{percent:.1f}%;background:{colour}"></div></div>
</div>"""


def header(headline: str, detail: str, share: float | None, broken: str = "") -> str:
    """Return the text above the charts, as HTML.

    Parameters
    ----------
    headline
        HTML.
    detail
        The line below, as text.
    share
        Between 0 and 1, draws the bar.
    broken
        What is wrong, as text; stands before the detail.
    """
    warning = ""
    if broken:
        colour = f"var(--jp-error-color1,{palette.BROKEN})"
        warning = f'<b style="color:{colour}">{escape(broken)}</b>, '
    return _HEADER.format(
        headline=headline,
        detail=warning + escape(detail),
        percent=100 * min(max(share or 0.0, 0.0), 1.0),
        grey=palette.TEXT,
        colour=palette.TRAIN,
    )
