"""Costs of operations on a card: published hardware figures, fitted constants, and prices."""
