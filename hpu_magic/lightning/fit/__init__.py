"""Observe a fit of Lightning's `Trainer` for the panel."""
