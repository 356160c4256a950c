"""The state of a fit: sampler, curves, progress, observations, and the interface to its source."""
