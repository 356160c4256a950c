"""Autocast, its operator lists, and FP8 inference."""
