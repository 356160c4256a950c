"""The controls of the charts; the browser handles all of them except the list of metrics to add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.layouts import row
from bokeh.models import InlineStyleSheet
from bokeh.models.widgets import Select

from hpu_magic.panels import palette
from hpu_magic.panels.document import CHOICE

_NONE = ""
_COLOR = f"var(--jp-ui-font-color1, {palette.TEXT})"
_BORDER = "var(--jp-border-color1, #8888)"
# A row of small controls in the page's colors; it wraps if necessary.
_ROW = ":host { flex-wrap: wrap; gap: 2px 14px; padding: 0 0 4px 2px; }"
_CONTROL = f"""
:host {{ --font-size: 12px; font-family: {palette.FONT}; color: {_COLOR}; margin: 0; }}
.bk-input-group {{ flex-direction: row; align-items: center; gap: 6px; color: {_COLOR}; }}
.bk-input-group > label {{
  color: {_COLOR}; font-size: 12px; margin: 0; white-space: nowrap;
}}
select.bk-input {{
  min-height: 0; height: 22px; line-height: 18px; padding: 0 18px 0 5px; font-size: 12px;
  appearance: none; background-repeat: no-repeat !important; background-size: 5px 5px !important;
  background-position: right 10px center, right 5px center !important;
  background-image: linear-gradient(45deg, transparent 50%, currentColor 50%),
    linear-gradient(135deg, currentColor 50%, transparent 50%) !important;
  color: {_COLOR}; background-color: var(--jp-layout-color1, transparent);
  border: 1px solid {_BORDER}; border-radius: 2px;
}}
select.bk-input option {{ color: {_COLOR}; background-color: var(--jp-layout-color1, Canvas); }}
select.bk-input:focus {{ outline: 2px solid {palette.TRAIN}; box-shadow: none; }}
"""


def controls(*shown: Any) -> Any:
    """Return a row of controls, each with its title on the left."""
    for control in shown:
        control.stylesheets = [InlineStyleSheet(css=_CONTROL)]
        control.margin = 0
    line = row(*shown, sizing_mode="stretch_width")
    line.stylesheets = [InlineStyleSheet(css=_ROW)]
    return line


def titled(control: Select, title: str, width: int) -> Any:
    """Set the title and the width of a control."""
    control.title, control.width, control.sizing_mode = title, width, None
    return control


class AddMetric:
    """A list of the metrics that have no chart; pages send the user's choice to the kernel."""

    def __init__(self) -> None:
        self._offered: list[str] = []
        self.select = Select(name=CHOICE, options=_options([], 0), value=_NONE, visible=False)

    def offer(self, metrics: Sequence[str], drawn: int) -> None:
        """List metrics that can be added to the ``drawn`` ones, and hide an empty list."""
        if list(metrics) == self._offered:
            return
        self._offered = list(metrics)
        self.select.options = _options(metrics, drawn)
        self.select.visible = bool(metrics)


def _options(metrics: Sequence[str], drawn: int) -> list[Any]:
    return [
        (_NONE, f"{drawn} of {drawn + len(metrics)} drawn"),
        *((name, name) for name in metrics),
    ]
