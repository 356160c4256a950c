"""Import hooks, and settings that survive a kernel restart."""
