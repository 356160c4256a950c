"""Suggestions for speeding up training and inference, based on estimates and measurements."""
