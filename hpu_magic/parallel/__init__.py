"""Persistent worker processes, one a card, that run cells together: on ipyparallel."""
