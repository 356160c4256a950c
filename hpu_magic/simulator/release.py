"""Which release of the vendor's software is simulated, as its parts tell it of themselves."""

RELEASE = "1.23.0"
"""The release whose documented API the simulator follows."""

DRIVER = f"{RELEASE}-simulator"
"""Version of the driver, its library and its tool."""

PLUGIN = f"{RELEASE}+simulated"
"""Version of the bridge's distribution: a local label, which compares as the release and later."""
