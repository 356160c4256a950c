"""Training with a live panel, using a framework's Trainer or a plain loop."""

INTERVAL = 0.1
"""Seconds between two samples of a fit."""
