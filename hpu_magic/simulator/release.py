"""Versions reported by the simulated parts of the vendor's software."""

RELEASE = "1.24.1"
"""The release whose documented API the simulator follows."""

DRIVER = f"{RELEASE}-simulator"
"""The version of the driver, its library and its command-line tool."""

PLUGIN = f"{RELEASE}+simulated"
"""The version of the bridge's distribution, which compares as newer than `RELEASE`."""
