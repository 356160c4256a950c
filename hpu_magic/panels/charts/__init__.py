"""The live charts: Bokeh figures over one axis, appended to from here and set by their reader."""

from __future__ import annotations

from hpu_magic.panels.charts.charts import Charts

__all__ = ["Charts"]
