"""Functions and context managers behind the magics, for use in scripts and notebooks."""
