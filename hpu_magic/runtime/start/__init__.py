"""Import hooks, and settings that survive a restart of the kernel."""
