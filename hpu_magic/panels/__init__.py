"""Live panels of fits and of device memory.

Bokeh, ipywidgets, Lightning and torch are not imported before a panel is shown.
"""
