"""Autocast and its operator lists, and inference in 8-bit floating point."""
