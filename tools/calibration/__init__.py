"""The published measurements, the models that they are of, and the fit of the constants to them."""
