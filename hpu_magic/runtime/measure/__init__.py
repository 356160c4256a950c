"""Measure the memory, time, profile and overhead of cells and blocks."""
