"""Versions that the simulated parts of the vendor's software report."""

RELEASE = "1.23.0"
"""Release whose documented API the simulator follows."""

DRIVER = f"{RELEASE}-simulator"
"""Version of the driver, its library and its tool."""

PLUGIN = f"{RELEASE}+simulated"
"""Version of the bridge's distribution; its local label makes it compare greater than `RELEASE`."""
