"""Deprecated functions that check for the device and load it."""


def is_habana_available() -> bool:
    """Return True, because simulated cards are always available."""
    return True


def load_habana_module() -> None:
    """Do nothing, because importing the bridge loads the device."""
