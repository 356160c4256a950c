"""Live panels: what a fit and a card are doing, drawn while they do it.

Nothing here imports Bokeh, ipywidgets, Lightning or torch before a panel is shown.
"""
