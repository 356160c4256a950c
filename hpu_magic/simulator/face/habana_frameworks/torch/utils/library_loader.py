"""Legacy functions that check for and load the device."""


def is_habana_available() -> bool:
    """Return True: simulated cards are always available."""
    return True


def load_habana_module() -> None:
    """Do nothing, because the import of the bridge loads the device."""
