"""Monitor a fit of Lightning's `Trainer` and report its progress to the panel."""
