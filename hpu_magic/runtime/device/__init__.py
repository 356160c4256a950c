"""The device, and what is moved to it."""
