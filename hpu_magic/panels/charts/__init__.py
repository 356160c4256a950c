"""The live charts: Bokeh figures with a shared time axis and controls for the user."""

from __future__ import annotations

from hpu_magic.panels.charts.charts import Charts

__all__ = ["Charts"]
