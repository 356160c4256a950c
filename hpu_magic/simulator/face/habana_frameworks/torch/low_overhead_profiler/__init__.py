"""A profiler of the host's stages that costs little: `profiler`."""
