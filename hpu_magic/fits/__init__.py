"""Training with a live panel: fits with a framework's Trainer, and plain loops."""

INTERVAL = 0.1
"""Seconds between two samples of a fit."""
