"""Observation of a fit of `Trainer` for the panel."""
