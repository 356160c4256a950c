"""Capture and replay HPU Graphs, and wrap models with the vendor's functions."""
