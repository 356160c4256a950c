"""Published measurements, their models, and the fit of the constants."""
