"""Dry runs of scripts on cards that compute nothing."""
