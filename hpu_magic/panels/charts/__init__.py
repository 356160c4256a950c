"""The live charts: Bokeh figures over one time axis, with controls for the reader."""

from __future__ import annotations

from hpu_magic.panels.charts.charts import Charts

__all__ = ["Charts"]
