"""Live panels of fits and cards.

No module here imports Bokeh, ipywidgets, Lightning or torch before a panel is shown.
"""
