"""Autocast and its operator lists."""
