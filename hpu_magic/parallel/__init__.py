"""Persistent ipyparallel worker processes, one per card, that run cells together."""
