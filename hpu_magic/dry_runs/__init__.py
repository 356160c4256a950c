"""Dry runs: what a script would do on cards that compute nothing."""
