"""Internals of the vendor's bridge that libraries import."""
