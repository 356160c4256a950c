"""Functions and context managers that implement the magics, for use in scripts and notebooks."""
