"""Suggestions for making training and inference faster, from estimates and measurements."""
