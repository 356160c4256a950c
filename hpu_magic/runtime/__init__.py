"""The verbs of the magics as plain functions and context managers, for scripts and notebooks."""
