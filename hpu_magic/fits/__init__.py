"""Training with a live panel: fits of framework Trainers, and plain loops."""

INTERVAL = 0.1
"""Seconds between two samples of a fit."""
