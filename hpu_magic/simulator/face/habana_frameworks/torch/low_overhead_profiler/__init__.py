"""Profiler of the host's stages with little overhead: `profiler`."""
