"""Persistent worker processes, one per card, that run cells together, based on ipyparallel."""
