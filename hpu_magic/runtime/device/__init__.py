"""Access the device, move objects to it, and track its peak memory usage."""
