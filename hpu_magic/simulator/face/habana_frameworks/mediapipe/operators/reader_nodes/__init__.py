"""Base classes and functions of readers."""
