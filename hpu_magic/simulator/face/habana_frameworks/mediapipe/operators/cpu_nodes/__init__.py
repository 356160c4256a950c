"""Base classes of operators that run a user's function."""
