"""The device, moving objects to it, and its peak memory usage."""
