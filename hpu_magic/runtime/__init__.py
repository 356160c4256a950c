"""The actions of the magics as functions and context managers, for scripts and notebooks."""
