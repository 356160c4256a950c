"""Live panels for fits and device memory.

Bokeh, ipywidgets, Lightning and torch are not imported until a panel is shown.
"""
