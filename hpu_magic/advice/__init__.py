"""Suggestions for faster training and inference, from estimates and measurements."""
