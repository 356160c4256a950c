"""Measurements of cells and blocks: memory, time, profile and ledger."""
