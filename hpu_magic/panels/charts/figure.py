"""An empty chart in the colors of the page's theme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import ColumnDataSource, CustomJS, HoverTool, InlineStyleSheet
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure

from hpu_magic.panels import palette

# Titles, axes and legends use the color of the page's theme. If the page has no theme, or if Bokeh
# does not support these variables, the color set in the models is used.
THEMED = "".join(
    f"--bk-{part}text-color: var(--jp-ui-font-color1, {palette.TEXT});"
    for part in ("", "major-label-", "label-")
)
# A legend is an HTML element that reads its color before it is attached to the page.
_THEMED_LEGEND = f".bk-label {{ color: var(--jp-ui-font-color1, {palette.TEXT}) !important; }}"
# The legend wraps if necessary, and moves up next to the title if there is enough space.
_WRAPPED = """
.bk-grid {
  display: flex; flex-wrap: wrap; justify-content: flex-end; row-gap: 0 !important;
  width: auto !important; height: auto !important; max-width: calc(100cqw - 36px);
}
"""
_RAISED = "@container (min-width: %dpx) { :host { height: 0; margin-top: -17px; } }"
# On a narrow page, the title also uses the space above the y axis; it must not touch the top label.
_STANDOFF, _STANDOFF_NARROW = 4, 10
_NARROW = f"""
const narrow = cb_obj.inner_width < 320
title.offset = narrow ? {8 - palette.LEFT} : 0
title.standoff = narrow ? {_STANDOFF_NARROW} : {_STANDOFF}
"""
_RIGHT = 28  # space for half of the last axis label, in pixels


def blank(height: int, title: str, x_range: Any, y_range: Any, x_ticks: Any) -> Any:
    """Return an empty chart."""
    plot: Any = figure(
        frame_height=height - 30,  # 30 pixels for title and legends, as in the saved picture
        sizing_mode="stretch_width",
        x_range=x_range,
        y_range=y_range,
        toolbar_location=None,
        tools="",
        min_border_left=palette.LEFT,
        min_border_right=_RIGHT,
        output_backend="canvas",
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
    )
    plot.title.text = title
    plot.title.text_color = palette.TEXT
    plot.title.text_font = palette.FONT
    plot.title.text_font_size = "11px"
    plot.title.text_font_style = "normal"
    plot.title.standoff = _STANDOFF
    for axis in (plot.xaxis, plot.yaxis):
        quiet(axis)
    plot.yaxis.ticker.desired_num_ticks = 4
    plot.grid.grid_line_color = palette.GRID
    plot.grid.grid_line_alpha = 0.25
    plot.xgrid.grid_line_color = None
    plot.xaxis.formatter = x_ticks
    narrow = CustomJS(args={"title": plot.title}, code=_NARROW)
    plot.js_on_change("inner_width", narrow)
    for each in (plot, y_range, plot.toolbar, plot.title):
        each.syncable = False  # values computed by the browser are not needed here
    return plot


def quiet(axis: Any) -> None:
    """Remove everything except the labels from an axis."""
    axis.major_label_text_color = palette.TEXT
    axis.major_label_text_font = palette.FONT
    axis.major_label_text_font_size = "10px"
    axis.axis_line_color = None
    axis.minor_tick_line_color = None
    axis.major_tick_line_color = None


def quiet_legend(legend: Any, title: str, items: Sequence[Any]) -> None:
    """Place a legend on the right, without a box, where it cannot cover the longest ``title``."""
    legend.items = list(items)
    legend.orientation = "horizontal"
    legend.location = "top_right"
    legend.background_fill_alpha = 0
    legend.border_line_color = None
    legend.label_text_color = palette.TEXT
    legend.label_text_font = palette.FONT
    legend.label_text_font_size = "11px"
    legend.padding = legend.margin = 0
    legend.spacing = 12
    if "stylesheets" in legend.properties():
        labels = [item.label.value for item in items]
        both = palette.LEFT + palette.width_of(title) + palette.legend_width(labels) + _RIGHT
        css = _THEMED_LEGEND + _WRAPPED + _RAISED % both
        legend.stylesheets = [InlineStyleSheet(css=css)]
    legend.glyph_width = 28  # long enough to show dashes


def drawn(source: ColumnDataSource, glyph: Any, level: Any = "glyph") -> GlyphRenderer[Any]:
    """Return a renderer for a source, without glyphs for selections."""
    plain: dict[str, Any] = dict.fromkeys(("selection_glyph", "nonselection_glyph", "muted_glyph"))
    return GlyphRenderer(data_source=source, glyph=glyph, level=level, **plain)


def hover(renderers: Sequence[Any], tooltip: str) -> HoverTool:
    """Return a tooltip that shows the values of the lines at the pointer."""
    return HoverTool(renderers=[*renderers], tooltips=tooltip, mode="vline", visible=False)


def dash_lengths(dashes: str) -> list[int]:
    """Return dash lengths as numbers for Bokeh."""
    return [int(length) for length in dashes.split()]
