"""Live panels for fits and device memory.

Bokeh, ipywidgets, Lightning and torch are only imported when a panel is shown.
"""
