"""Training with a live panel: the fits of frameworks, and plain loops."""
