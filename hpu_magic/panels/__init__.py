"""Live panels of fits and of device memory.

Bokeh, ipywidgets, Lightning and torch are not imported until a panel is shown.
"""
