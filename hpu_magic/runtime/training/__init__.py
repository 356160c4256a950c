"""The state of a fit: sampler, curves, progress, observations and the interface of its source."""
