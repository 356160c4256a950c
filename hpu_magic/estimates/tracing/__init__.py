"""Trace the operations of a step, with their shapes, lifetimes and modules."""
