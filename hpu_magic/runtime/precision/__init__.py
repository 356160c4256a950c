"""Autocast and its operator lists, and inference in FP8."""
