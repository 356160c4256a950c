"""Profiler with little overhead for the host's stages: `profiler`."""
